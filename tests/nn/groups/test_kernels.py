"""The kernels for groups: the layouts that they know, their arithmetic, and when they are left alone."""

import math
import os
import subprocess
import sys
import textwrap

import pytest
import torch

from trimreg.nn.groups import kernels

CUDA = torch.device("cuda")


@pytest.mark.parametrize(
    ("view", "axis", "leading", "expected"),
    [
        (torch.empty(6, 8), 1, 0, (1, 0, 6, 8, 8, 1, 1)),  # inputs of a linear layer
        (torch.empty(6, 8), 0, 0, (1, 0, 1, 0, 6, 8, 8)),  # outputs
        (torch.empty(6, 8, 3, 3), 0, 0, (1, 0, 1, 0, 6, 72, 72)),
        (torch.empty(6, 8, 3, 3), 1, 0, (1, 0, 6, 72, 8, 9, 9)),
        (torch.empty(6, 8, 3, 3).to(memory_format=torch.channels_last), 0, 0, (1, 0, 1, 0, 6, 72, 72)),
        (torch.empty(2, 6, 8), 2, 1, (2, 48, 6, 8, 8, 1, 1)),  # replicas
        (torch.empty(6, 4, 5)[:, 1:3], 1, 0, (1, 0, 6, 20, 2, 5, 5)),  # blocks of columns
        (torch.empty(3, 4, 8).transpose(0, 1), 0, 0, (1, 0, 3, 32, 4, 8, 8)),  # gates
        (torch.empty(6, 8)[:, ::2], 1, 0, None),
        (torch.empty(6, 8, 3, 3).to(memory_format=torch.channels_last), 1, 0, (1, 0, 54, 8, 8, 1, 1)),
    ],
)
def test_layouts_cover_the_entries_of_each_group(view, axis, leading, expected):
    form = kernels.layout(view, axis, leading)
    assert form == expected
    if form is None:
        return
    storage = torch.arange(view.untyped_storage().nbytes() // 4, dtype=torch.float32)
    own = storage.as_strided(view.shape, view.stride(), view.storage_offset())
    sizes = (form.replicas, form.rows, form.groups, form.inner)
    steps = (form.replica_step, form.row_step, form.group_step, 1)
    seen = storage.as_strided(sizes, steps, view.storage_offset())
    over = [i for i in range(leading, view.ndim) if i != axis]
    assert torch.equal(seen.sum((1, 3)).flatten(), own.sum(over).flatten())


def test_kernels_in_the_interpreter():
    """Their arithmetic on the CPU, in a process of its own: Triton asks how to run when it is imported."""
    pytest.importorskip("triton")
    code = """
        import contextlib, torch
        from trimreg.nn.groups import kernels
        torch.cuda.device_of = lambda x: contextlib.nullcontext()
        print(kernels.disagreement("cpu"))
    """
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    if "0-dimensional" in answer.stdout:
        pytest.skip("this Triton's interpreter does not know this NumPy")
    assert answer.stdout.split() == []


@pytest.fixture
def unchecked(monkeypatch):
    """As on a machine with Triton that has not checked the kernels yet; returns the checks that were made."""
    checks = []
    monkeypatch.setattr(kernels, "_verdicts", {})
    monkeypatch.setattr(kernels, "triton", object())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(kernels, "disagreement", lambda device: checks.append(device) or "")
    return checks


def test_kernels_are_checked_once(unchecked):
    assert kernels.usable(CUDA)
    assert kernels.usable(CUDA)
    assert len(unchecked) == 1
    assert not kernels.usable(torch.device("cpu"))


def test_kernels_that_differ_are_left_alone(unchecked, monkeypatch):
    monkeypatch.setattr(kernels, "disagreement", lambda device: "its sums differ from PyTorch's")
    with pytest.warns(UserWarning, match="kernels for groups on cuda are not used: its sums differ"):
        assert not kernels.usable(CUDA)
    assert not kernels.usable(CUDA)  # and nothing is said again


def test_kernels_are_not_checked_during_a_capture(unchecked, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert not kernels.usable(CUDA)
    assert unchecked == []


def test_faults_are_named(monkeypatch):
    """Functions of PyTorch in place of the kernels: right ones, wrong ones, and one that does not compile."""

    def sums(a, b, form, out, fresh, root):
        sizes = (form.replicas, form.rows, form.groups, form.inner)
        steps = (form.replica_step, form.row_step, form.group_step, 1)
        out.copy_((a.as_strided(sizes, steps) * b.as_strided(sizes, steps)).sum((1, 3)).view(out.shape))

    def scale(x, factor, form):
        sizes = (form.replicas, form.rows, form.groups, form.inner)
        steps = (form.replica_step, form.row_step, form.group_step, 1)
        x.as_strided(sizes, steps).mul_(factor.view(form.replicas, 1, form.groups, 1))

    def by_rank(r, ranks):
        order = torch.sort(r, dim=-1, descending=True, stable=True).indices
        return torch.empty_like(ranks).scatter_(-1, order, ranks)

    def broken(*arguments, **options):
        raise RuntimeError("ptxas was not found")

    right = {"add_products": sums, "scale": scale, "by_rank": by_rank}
    for name, function in right.items():
        monkeypatch.setattr(kernels, name, function)
    assert kernels.disagreement("cpu") == ""
    wrong = {
        "add_products": (
            lambda a, b, form, out, **how: sums(a, b, form, out, **how) or out.mul_(1.01),
            "sums",
        ),
        "scale": (lambda x, factor, form: scale(x, factor, form) or x.add_(1e-3), "products"),
        "by_rank": (lambda r, ranks: ~by_rank(r, ranks), "ranks"),
    }
    for name, (function, said) in wrong.items():
        with monkeypatch.context() as patched:
            patched.setattr(kernels, name, function)
            assert kernels.disagreement("cpu") == f"its {said} differ from PyTorch's"
    monkeypatch.setattr(kernels, "scale", broken)
    assert kernels.disagreement("cpu") == "RuntimeError: ptxas was not found"


needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("shape", "axis", "leading"),
    [
        ((513, 257), 1, 0),
        ((300, 1037), 0, 0),
        ((128, 77, 9), 1, 0),
        ((3, 200, 150), 2, 1),
        ((3, 200, 150), 1, 1),
    ],
)
def test_sums_and_products_on_cuda(shape, axis, leading, dtype):
    assert kernels.triton is None or kernels.usable(CUDA)
    if kernels.triton is None:
        pytest.skip("needs a GPU")
    a, b = (torch.randn(shape, device="cuda").to(dtype) for _ in range(2))
    form = kernels.layout(a, axis, leading)
    over = [i for i in range(leading, a.ndim) if i != axis]
    expected = (a.double() * b.double()).sum(over)
    out = torch.ones_like(expected, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    kernels.add_products(a, b, form, out, fresh=False, root=False)
    close = {"rtol": 1e-4, "atol": 1e-4 * math.sqrt(a.numel() / expected.numel())}
    torch.testing.assert_close(out.double(), expected + 1.0, **close)
    kernels.add_products(a, a, form, out, fresh=True, root=True)
    torch.testing.assert_close(out.double(), a.double().square().sum(over).sqrt(), rtol=1e-5, atol=0.0)
    again = out.clone()
    kernels.add_products(a, a, form, again, fresh=True, root=True)
    assert torch.equal(out, again)
    for factor in (expected > 0, (expected > 0).float() * 0.5):
        spread = factor.reshape([size if i < leading or i == axis else 1 for i, size in enumerate(shape)])
        scaled = a.clone()
        kernels.scale(scaled, factor, form)
        assert torch.equal(scaled, (a * spread).to(dtype))


@needs_cuda
@pytest.mark.parametrize("width", [3, 1000, 4096])
def test_ranks_on_cuda(width):
    if kernels.triton is None:
        pytest.skip("needs a GPU")
    r = torch.randint(0, width // 2 + 1, (3, width), device="cuda").float()  # many ties
    first = torch.rand(3, width, device="cuda") > 0.5
    order = torch.sort(r, dim=-1, descending=True, stable=True).indices
    assert torch.equal(kernels.by_rank(r, first), torch.empty_like(first).scatter_(-1, order, first))
