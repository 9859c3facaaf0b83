"""Losses by name. Each is a small NumPy class; see :mod:`trimreg.losses.base` for the interface."""

from __future__ import annotations

from .base import Loss
from .gamma import Gamma
from .logistic import Logistic
from .poisson import Poisson
from .quadratic import Quadratic

LOSSES = {loss.name: loss for loss in (Quadratic, Logistic, Poisson, Gamma)}

__all__ = ["LOSSES", "Gamma", "Logistic", "Loss", "Poisson", "Quadratic", "get_loss"]


def get_loss(loss) -> Loss:
    """The loss of that name, or the object itself if it already is one.

    Examples
    --------
    >>> from trimreg.losses import get_loss
    >>> get_loss("quadratic").name
    'quadratic'
    """
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise ValueError(f"loss must be one of {sorted(LOSSES)} or a loss object; got {loss!r}")
        return LOSSES[loss]()
    if isinstance(loss, Loss):
        return loss
    raise ValueError(f"loss must be one of {sorted(LOSSES)} or a loss object; got {loss!r}")
