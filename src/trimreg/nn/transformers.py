"""A callback for the Hugging Face Trainer that trains a network to an exact size."""

from __future__ import annotations

import base64
import io
import zlib
from pathlib import Path
from typing import Any

import torch

try:
    from transformers import TrainerCallback, TrainerState
    from transformers.trainer_callback import ExportableState
except ImportError as missing:
    needs = "trimreg.nn.transformers needs transformers and accelerate"
    raise ImportError(f"{needs}: pip install 'trimreg[transformers]'") from missing

from .callbacks import Pruning


class TrimmedPruning(Pruning, TrainerCallback, ExportableState):
    """Prune a model to an exact size while ``Trainer.train`` runs.

    The penalty is built and attached when training begins. Its state is saved in ``trainer_state.json`` of
    every checkpoint and restored by ``train(resume_from_checkpoint=...)``. When training ends, the groups
    that are not kept are zero. After that the structure is fixed: another training trains the kept groups.
    Use one callback per Trainer; its ``keep`` may name all layers.

    Parameters
    ----------
    keep, alpha, groups, mode, during, **options
        See :class:`trimreg.nn.callbacks.Pruning` and :class:`trimreg.nn.TrimmedGroupL1`.

    Attributes
    ----------
    penalty : TrimmedGroupL1 or None
        For :func:`trimreg.nn.export`, once training has begun.

    Notes
    -----
    Leave ``restore_callback_states_from_checkpoint`` at False: it makes the Trainer rebuild its callbacks
    from JSON, which cannot store modules and schedules. The state of this callback is restored without it.
    Weights that are sharded over devices (FSDP, DeepSpeed) are not supported: they have no whole groups to
    rank.

    Examples
    --------
    >>> from trimreg.nn.transformers import TrimmedPruning
    >>> callback = TrimmedPruning(keep={"bert.encoder.layer.*.output.dense": 1024})
    >>> callback.state()
    {'args': {}, 'attributes': {}}
    """

    def on_init_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Refuse the setting that would replace this callback by one without its arguments."""
        if args.restore_callback_states_from_checkpoint:
            raise ValueError("TrimmedPruning needs restore_callback_states_from_checkpoint=False")

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **others: Any
    ) -> None:
        """Attach the penalty: the optimizer exists now, and a checkpoint is loaded."""
        resumed = saved_state(state) if state.global_step > 0 else None
        self.begin(model, [optimizer], state.max_steps, resumed)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Finalize; if the best model was loaded, with the state that the penalty had then."""
        best = state.best_model_checkpoint
        if args.load_best_model_at_end and best is not None:
            of_best = saved_state(TrainerState.load_from_json(str(Path(best) / "trainer_state.json")))
            if of_best is not None and self.penalty is not None:
                self.penalty.load_state_dict(of_best)
        self.end()

    def state(self) -> dict:
        """The state for ``trainer_state.json``."""
        attributes = {} if self.penalty is None else {"saved": packed(self.penalty.state_dict())}
        return {"args": {}, "attributes": attributes}


def saved_state(state: TrainerState) -> dict | None:
    """The state of the penalty in that of a Trainer, or None."""
    entry = state.stateful_callbacks.get(TrimmedPruning.__name__, {})
    if isinstance(entry, list):
        raise ValueError("a Trainer can restore only one TrimmedPruning; name all layers in its keep")
    text = entry.get("attributes", {}).get("saved")
    return None if text is None else unpacked(text)


def packed(state: dict) -> str:
    """A dict of tensors as a string."""
    buffer = io.BytesIO()
    torch.save({name: tensor.cpu() for name, tensor in state.items()}, buffer)
    return base64.b64encode(zlib.compress(buffer.getvalue())).decode("ascii")


def unpacked(text: str) -> dict:
    """The inverse of :func:`packed`; loads only tensors."""
    return torch.load(io.BytesIO(zlib.decompress(base64.b64decode(text))), weights_only=True)
