"""A callback for Lightning that trains a network to an exact size."""

from __future__ import annotations

try:
    from lightning.pytorch import Callback
except ImportError as missing:
    raise ImportError("trimreg.nn.lightning needs Lightning: pip install 'trimreg[lightning]'") from missing

from .callbacks import Pruning


class TrimmedPruning(Pruning, Callback):
    """Prune a LightningModule to an exact size while it trains.

    The penalty is built and attached when ``fit`` begins, its state goes into every checkpoint and comes back
    with ``fit(ckpt_path=...)``, and when ``fit`` ends the groups that are not kept are zero. A checkpoint
    written on the way holds the network as it was then, so that a resumed run is the same as one without a
    break. Once a ``fit`` has ended, the structure is fixed: another one trains the kept groups on.

    Parameters
    ----------
    keep, alpha, groups, mode, during, **options
        See :class:`trimreg.nn.callbacks.Pruning` and :class:`trimreg.nn.TrimmedGroupL1`. Names of layers are
        those in the LightningModule, such as ``"net.0"``.

    Attributes
    ----------
    penalty : TrimmedGroupL1 or None
        For :func:`trimreg.nn.export`, once ``fit`` has begun.

    Examples
    --------
    >>> from trimreg.nn.lightning import TrimmedPruning
    >>> callback = TrimmedPruning(keep={"net.0": 32, "net.2": 50}, during=(0.05, 0.5))
    >>> callback.state_key
    "TrimmedPruning['net.0', 'net.2']"
    """

    _loaded = None

    @property
    def state_key(self) -> str:
        """By the layers, so that several callbacks of one training keep their states apart."""
        names = [key if isinstance(key, str) else type(key).__name__ for key in self.options["keep"]]
        return f"{type(self).__qualname__}{sorted(names)}"

    def setup(self, trainer, pl_module, stage):
        """Forget a state that was loaded for something else; Lightning loads that of this run after setup."""
        self._loaded = None

    def on_fit_start(self, trainer, pl_module):
        """Attach: by now the optimizers are there, and the model is on its device."""
        steps = trainer.estimated_stepping_batches if self.during is not None else 0
        self.begin(pl_module, trainer.optimizers, steps, self._loaded)
        self._loaded = None

    def on_fit_end(self, trainer, pl_module):
        """Finalize, after the last checkpoint."""
        self.end()

    def on_exception(self, trainer, pl_module, exception):
        """Detach without finalizing: the training has not come to its end."""
        self.let_go()

    def state_dict(self):
        """The penalty's state, for the checkpoint."""
        return {} if self.penalty is None else dict(self.penalty.state_dict())

    def load_state_dict(self, state_dict):
        """Keep the state until the penalty is built."""
        self._loaded = state_dict
