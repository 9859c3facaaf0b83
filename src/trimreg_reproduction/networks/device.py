"""The device on which networks train, and CUDA graphs on it."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

from ..spec import BadInput

VARIABLE = "TRIMREG_DEVICE"


def find_device(asked: str | None = None, source: str = VARIABLE) -> torch.device:
    """The device asked for, or that of the variable ``TRIMREG_DEVICE``: "auto", "cpu", "cuda:1", ...

    "auto", the default, is a GPU if there is one, else the CPU. Messages name ``source`` as the argument.

    Raises
    ------
    BadInput
        If there is no such device.

    Examples
    --------
    >>> import os
    >>> from unittest.mock import patch
    >>> from trimreg_reproduction.networks.device import find_device
    >>> with patch.dict(os.environ, TRIMREG_DEVICE="cpu"):
    ...     find_device()
    device(type='cpu')
    """
    if asked is None:
        asked = os.environ.get(VARIABLE, "")
    asked = asked.strip().lower() or "auto"
    if asked == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(asked)
    except RuntimeError:
        raise BadInput(
            f"{source} must be auto, cpu, cuda or another device of PyTorch; got {asked!r}"
        ) from None
    if found.type == "cuda":
        _check_cuda(found, f"{source}={asked}")
    elif found.type != "cpu":
        _check_other(found, f"{source}={asked}")
    return found


def _check_cuda(found, said):
    if not torch.cuda.is_available():
        why = "PyTorch is built without CUDA" if torch.version.cuda is None else "PyTorch finds no GPU here"
        raise BadInput(f"{said}, but {why}; say auto or cpu")
    if found.index is not None and found.index >= torch.cuda.device_count():
        raise BadInput(f"{said}, but there are {torch.cuda.device_count()} GPUs, counted from 0")


def _check_other(found, said):
    """Refuse a device from which a number cannot be read back, such as "meta"."""
    try:
        torch.ones(1, device=found).item()
    except (RuntimeError, NotImplementedError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInput(f"{said}, but that device cannot be used here: {reason}") from error


def captured(
    warm_up: Callable[[], object], record: Callable[[], object] | None = None
) -> torch.cuda.CUDAGraph:
    """A CUDA graph of ``record`` (by default of ``warm_up``), which is recorded but not run.

    First ``warm_up`` runs on a stream of its own, so that libraries set up their state outside of the graph.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        warm_up()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (record or warm_up)()
    return graph
