"""The device that the environment asks for."""

import pytest
import torch

from trimreg_reproduction.networks.device import find_device
from trimreg_reproduction.spec import BadInput


def gpus(monkeypatch, count):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


@pytest.mark.parametrize("asked", [None, "auto", "", " AUTO "])
@pytest.mark.parametrize(("count", "expected"), [(0, "cpu"), (2, "cuda")])
def test_auto_takes_a_gpu_where_there_is_one(monkeypatch, asked, count, expected):
    gpus(monkeypatch, count)
    monkeypatch.delenv("TRIMREG_DEVICE", raising=False)
    if asked is not None:
        monkeypatch.setenv("TRIMREG_DEVICE", asked)
    assert find_device() == torch.device(expected)


@pytest.mark.parametrize("asked", ["cpu", "cuda", "cuda:0", "CUDA:1"])
def test_a_device_by_name(monkeypatch, asked):
    gpus(monkeypatch, 2)
    monkeypatch.setenv("TRIMREG_DEVICE", asked)
    assert find_device() == torch.device(asked.lower())


@pytest.mark.parametrize(
    ("asked", "count", "said"),
    [
        ("cuda", 0, "TRIMREG_DEVICE=cuda, but PyTorch .*; say auto or cpu"),
        ("cuda:2", 2, "TRIMREG_DEVICE=cuda:2, but there are 2 GPUs"),
        ("gpu", 2, "must be auto, cpu, cuda .*'gpu'"),
        ("meta", 0, "TRIMREG_DEVICE=meta, but that device cannot be used"),
    ],
)
def test_a_device_that_is_not_there(monkeypatch, asked, count, said):
    gpus(monkeypatch, count)
    monkeypatch.setenv("TRIMREG_DEVICE", asked)
    with pytest.raises(BadInput, match=said):
        find_device()
