"""Tests, intervals and error control after a selection of features."""

from __future__ import annotations

from .._lazy import lazy

_WHERE = {  # no name may be that of a module of this room, which would hide it
    "adaptive_quantile": ".pvalues",
    "DoubleSelection": ".treatment",
    "e_bh": ".pvalues",
    "errors_of": ".refits",
    "GaussianKnockoffs": ".sampler",
    "Knockoffs": ".filter",
    "MultiSplit": ".splits",
    "Refit": ".refits",
    "refit": ".refits",
}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazy(__name__, _WHERE)
