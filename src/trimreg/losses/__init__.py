"""Losses by name. Each is a small NumPy class; see :mod:`trimreg.losses.base` for the interface."""

from __future__ import annotations

from .base import LOSSES, Loss, get_loss
from .classes.logistic import Logistic
from .classes.multinomial import Multinomial
from .classes.ordinal import Ordinal
from .classes.squared_hinge import SquaredHinge
from .cox import Cox
from .huber import Huber
from .log_link.gamma import Gamma
from .log_link.negative_binomial import NegativeBinomial
from .log_link.poisson import Poisson
from .log_link.tweedie import Tweedie
from .multitask import MultiTaskQuadratic
from .quadratic import Quadratic
from .quantile import Quantile

_KINDS = (
    Quadratic, Logistic, Multinomial, Poisson, Gamma, Huber, Cox, MultiTaskQuadratic,
    NegativeBinomial, Tweedie, Quantile, Ordinal, SquaredHinge,
)  # fmt: skip
LOSSES.update({kind.name: kind for kind in _KINDS})

__all__ = ["LOSSES", "Loss", "get_loss", *(kind.__name__ for kind in _KINDS)]
