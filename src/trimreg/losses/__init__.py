"""Losses by name. Each is a small NumPy class; see :mod:`trimreg.losses.base` for the interface."""

from __future__ import annotations

from .base import LOSSES, Loss, get_loss
from .cox import Cox
from .gamma import Gamma
from .huber import Huber
from .logistic import Logistic
from .multinomial import Multinomial
from .multitask import MultiTaskQuadratic
from .poisson import Poisson
from .quadratic import Quadratic

_KINDS = (Quadratic, Logistic, Multinomial, Poisson, Gamma, Huber, Cox, MultiTaskQuadratic)
LOSSES.update({kind.name: kind for kind in _KINDS})

__all__ = ["LOSSES", "Loss", "get_loss", *(kind.__name__ for kind in _KINDS)]
