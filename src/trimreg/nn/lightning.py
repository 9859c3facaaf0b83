"""A callback for Lightning that trains a network to an exact size."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError as missing:
    raise ImportError("trimreg.nn.lightning needs Lightning: pip install 'trimreg[lightning]'") from missing

from .callbacks import Pruning


class TrimmedPruning(Pruning, Callback):
    """Prune a LightningModule to an exact size while it trains.

    The penalty is built and attached when ``fit`` begins. Its state is saved in every checkpoint and restored
    by ``fit(ckpt_path=...)``. When ``fit`` ends, the groups that are not kept are zero. A checkpoint contains
    the network as it was at that step, so a resumed run equals an uninterrupted one. After ``fit`` the
    structure is fixed: another ``fit`` trains the kept groups.

    Parameters
    ----------
    keep, alpha, groups, mode, during, **options
        See :class:`trimreg.nn.callbacks.Pruning` and :class:`trimreg.nn.TrimmedGroupL1`. Layers have their
        names in the LightningModule, such as ``"net.0"``.

    Attributes
    ----------
    penalty : TrimmedGroupL1 or None
        For :func:`trimreg.nn.export`, once ``fit`` has begun.

    Examples
    --------
    >>> from trimreg.nn.lightning import TrimmedPruning
    >>> callback = TrimmedPruning(keep={"net.0": 32, "net.2": 50})
    >>> callback.state_key
    "TrimmedPruning['net.0', 'net.2']"
    """

    _loaded: dict | None = None

    @property
    def state_key(self) -> str:
        """A key made of the layers, so that several callbacks have separate states."""
        keep = self.options["keep"]
        keys = keep if isinstance(keep, dict) else [repr(keep)]
        names = [key if isinstance(key, str) else type(key).__name__ for key in keys]
        return f"{type(self).__qualname__}{sorted(names)}"

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Forget a state from an earlier run; Lightning loads the state of this run after setup."""
        self._loaded = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Attach the penalty: the optimizers exist now, and the model is on its device."""
        self.begin(pl_module, trainer.optimizers, trainer.estimated_stepping_batches, self._loaded)
        self._loaded = None

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Finalize after the last checkpoint."""
        self.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Detach without finalizing, since the training is not complete."""
        self.detach()

    def state_dict(self) -> dict:
        """The state of the penalty, for the checkpoint."""
        return {} if self.penalty is None else dict(self.penalty.state_dict())

    def load_state_dict(self, state_dict: dict) -> None:
        """Keep the state until the penalty is built."""
        self._loaded = state_dict
