"""PyTorch networks: train a network to an exact size. See :class:`trimreg.nn.TrimmedGroupL1`."""

from __future__ import annotations

from .._lazy import lazy

try:
    import torch  # noqa: F401
except ImportError as missing:
    raise ImportError("trimreg.nn needs PyTorch: pip install 'trimreg[torch]'") from missing

_WHERE = {
    "TrimmedGroupL1": ".penalty.trimmed_group_l1",
    "LayerGroups": ".groups.layer_groups",
    "Slab": ".groups.layer_groups",
    "Budget": ".structure.budget",
    "layer_groups": ".groups.layer_groups",
    "Ramp": ".penalty.schedules",
    "Constant": ".penalty.schedules",
    "BayesLinear": ".layers.bayes",
    "BayesConv2d": ".layers.bayes",
    "bayesianize": ".layers.bayes",
    "kl_divergence": ".layers.bayes",
    "kl_loss": ".layers.bayes",
    "L0Linear": ".layers.gates",
    "L0Conv2d": ".layers.gates",
    "l0_loss": ".layers.gates",
    "export": ".exporting.export",
    "load": ".exporting.files",
}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazy(__name__, _WHERE)
