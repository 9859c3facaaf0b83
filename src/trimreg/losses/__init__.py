"""Losses by name. Each is a small NumPy class; see :mod:`trimreg.losses.base` for the interface."""

from __future__ import annotations

from .base import Loss
from .cox import Cox
from .gamma import Gamma
from .huber import Huber
from .logistic import Logistic
from .multinomial import Multinomial
from .multitask import MultiTaskQuadratic
from .poisson import Poisson
from .quadratic import Quadratic

_KINDS = (Quadratic, Logistic, Multinomial, Poisson, Gamma, Huber, Cox, MultiTaskQuadratic)
LOSSES = {kind.name: kind for kind in _KINDS}

__all__ = ["LOSSES", "Loss", "get_loss", *(kind.__name__ for kind in _KINDS)]


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
