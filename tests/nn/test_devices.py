"""Train, export, save and load on each device that there is: the whole way of a user."""

import copy

import pytest
import torch
from nn_helpers import Net, Reader, physical
from torch import nn
from torch.nn import functional as F

from trimreg.nn.exporting.export import export
from trimreg.nn.exporting.files import load, save
from trimreg.nn.layers.bayes import bayesianize, kl_loss
from trimreg.nn.layers.gates import L0Conv2d, L0Linear, l0_loss
from trimreg.nn.penalty.schedules import Ramp
from trimreg.nn.penalty.trimmed_group_l1 import TrimmedGroupL1

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
KEEP = {"conv1": 4, "conv2": 5, "fc1": 30, "fc2": 7}


def lenet(conv=nn.Conv2d, linear=nn.Linear):
    def forward(m, x):
        x = F.max_pool2d(F.relu(m.conv1(x)), 2)
        x = F.max_pool2d(F.relu(m.conv2(x)), 2)
        return m.fc2(torch.sigmoid(m.fc1(x.flatten(1))))

    return Net(forward, conv1=conv(1, 8, 3), conv2=conv(8, 10, 3), fc1=linear(40, 16), fc2=linear(16, 3))


def residual():
    def forward(m, x):
        x = m.norm1(m.stem(x)).relu()
        x = (x + m.norm2(m.inner(x))).relu()
        return m.head(x.mean((2, 3)))

    return Net(
        forward, stem=nn.Conv2d(1, 8, 3, padding=1), norm1=nn.BatchNorm2d(8), norm2=nn.BatchNorm2d(8),
        inner=nn.Conv2d(8, 8, 3, padding=1), head=nn.Linear(8, 3),
    )  # fmt: skip


CASES = {
    "lenet": (lenet, KEEP),
    "bayes": (lambda: bayesianize(lenet(), initial_log_alpha=-3.0), KEEP),
    "l0": (lambda: lenet(L0Conv2d, L0Linear), KEEP),
    "residual": (residual, {"stem": 5, "inner": 6, "head": 4}),
    "reader": (Reader, {"attention": 2, "head": 7}),
}


def further_loss(model, case):
    return {"bayes": kl_loss, "l0": lambda m, n: l0_loss(m, n, strength=0.01)}[case](model, 40)


OPTIONS = [{}, {"alpha": 1.0}, {"alpha": 1.0, "mode": "bcd", "tau": 0.1}]
PAIRS = [(case, OPTIONS[number % 3]) for number, case in enumerate([*CASES, "bayes"])]


@pytest.mark.parametrize(("case", "options"), PAIRS, ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_the_whole_way(device, case, options, tmp_path):
    build, keep = CASES[case]
    model = build().to(device)
    x = torch.randint(9, (40, 6)) if case == "reader" else torch.randn(40, 1, 14, 14)
    x, y = x.to(device), torch.randint(3, (40,)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    penalty = TrimmedGroupL1(model, keep, h_schedule=Ramp(2, 12), freeze_at=14, **options)
    penalty.attach(optimizer)
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if case in ("bayes", "l0"):
            loss = loss + further_loss(model, case)
        loss.backward()
        optimizer.step()
    small = export(model, penalty, x[:4], repeats=1)
    assert {layer.name: layer.kept for layer in small.report.layers} == keep
    assert all(size <= keep[name] for name, size in physical(small).items() if case != "residual")
    penalty.finalize_()
    with torch.no_grad():
        want, got = copy.deepcopy(model).eval()(x), small.model(x)
    assert got.device == x.device
    assert (got - want).abs().max() <= 1e-5 * want.abs().max()
    save(small.model, tmp_path / "small")
    with torch.no_grad():
        again = load(tmp_path / "small").to(device)(x)
    torch.testing.assert_close(again, got, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("device", DEVICES)
def test_autocast_with_noise(device, low):
    """Gradients of posteriors are finite under autocast, also with groups that are cut."""
    model = bayesianize(lenet(), initial_log_alpha=-10.0).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(device, enabled=low == torch.float16)
    TrimmedGroupL1(model, KEEP).attach(optimizer)
    x, y = torch.randn(40, 1, 14, 14, device=device), torch.randint(3, (40,), device=device)
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=low):
            loss = F.cross_entropy(model(x).float(), y)
        scaler.scale(loss + kl_loss(model, 40)).backward()
        scaler.step(optimizer)
        scaler.update()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter).all(), name
