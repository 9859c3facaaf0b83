"""PyTorch: train a network to an exact size. See :class:`trimreg.nn.TrimmedGroupL1`.

The names are imported when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module

try:
    import torch  # noqa: F401
except ImportError as missing:
    raise ImportError("trimreg.nn needs PyTorch: pip install 'trimreg[torch]'") from missing

_WHERE = {
    "TrimmedGroupL1": "penalty",
    "LayerGroups": "groups",
    "Slab": "groups",
    "layer_groups": "groups",
    "Ramp": "schedules",
    "Constant": "schedules",
    "BayesLinear": "bayes",
    "BayesConv2d": "bayes",
    "bayesianize": "bayes",
    "kl_divergence": "bayes",
    "kl_loss": "bayes",
    "L0Linear": "gates",
    "L0Conv2d": "gates",
    "l0_loss": "gates",
    "EnsembleLinear": "ensemble",
    "EnsembleConv2d": "ensemble",
    "EnsembleBayesLinear": "ensemble_stochastic",
    "EnsembleBayesConv2d": "ensemble_stochastic",
    "EnsembleL0Linear": "ensemble_stochastic",
    "EnsembleL0Conv2d": "ensemble_stochastic",
    "ensemble_cross_entropy": "ensemble",
    "export": "exporting",
    "load": "serialize",
}

__all__ = sorted(_WHERE)


def __getattr__(name):
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
