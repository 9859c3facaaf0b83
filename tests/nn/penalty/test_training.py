"""Training with the penalty: it finds the inputs, and what PyTorch puts around a step still works."""

import math

import pytest
import torch
from torch import nn

from trimreg.nn import Ramp, TrimmedGroupL1
from trimreg.nn.groups.layer_groups import Slab

KEEP = {"0": 3, "2": 8}


def problem(n=256, p=12, seed=0):
    """Three inputs of twelve matter."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, p, generator=generator)
    return X, (X[:, 2] - X[:, 5].abs() + X[:, 7] * 1.5)[:, None]


def network(seed=0, width=16, p=12):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(p, width), nn.ReLU(), nn.Linear(width, 1))


def train(model, optimizer, penalty, steps, forward=None, scaler=None, start=0):
    X, y = problem()
    for k in range(start, start + steps):
        rows = torch.arange(k * 64, (k + 1) * 64) % len(X)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss((forward or model)(X[rows]), y[rows])
        if penalty is not None and penalty.mode == "subgradient":
            loss = loss + penalty.loss()
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    return loss.item()


def nonzero(penalty):
    return {name: int((layer.norms() > 0).sum()) for name, layer in penalty.layers.items()}


RECIPES = {
    "hard": {"h_schedule": Ramp(20, 120)},
    "exact": {"alpha": 5.0, "h_schedule": Ramp(20, 120), "freeze_at": 130},
    "bcd": {"alpha": 3.0, "mode": "bcd", "tau": 0.05, "alpha_schedule": Ramp(20, 120)},
    "subgradient": {"alpha": 0.05, "mode": "subgradient", "tau": 0.05},
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_training_finds_the_inputs(recipe):
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    penalty = TrimmedGroupL1(model, KEEP, **RECIPES[recipe])
    penalty.attach(optimizer)
    train(model, optimizer, penalty, 180)
    penalty.freeze_()
    train(model, optimizer, penalty, 40, start=180)
    penalty.finalize_()
    assert nonzero(penalty) == KEEP
    assert penalty.kept()["0"].nonzero().flatten().tolist() == [2, 5, 7]
    X, y = problem(seed=1)
    assert nn.functional.mse_loss(model(X), y).item() < 0.15


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "Adam fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "AdamW tensor rate": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), foreach=False),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_any_optimizer(name):
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    penalty = TrimmedGroupL1(model, KEEP, h_schedule=Ramp(2, 8))
    handle = penalty.attach(optimizer)
    train(model, optimizer, penalty, 10)
    assert nonzero(penalty) == KEEP
    assert int(penalty.step) == 10
    handle.remove()
    train(model, optimizer, penalty, 1)
    assert int(penalty.step) == 10


def test_lbfgs_takes_one_step_of_the_penalty_a_call():
    model, (X, y) = network(), problem()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
    penalty = TrimmedGroupL1(model, KEEP, h_schedule=None)
    penalty.attach(optimizer)

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(X), y)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    assert int(penalty.step) == 3
    assert nonzero(penalty) == KEEP


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_resumed_training_is_the_same_bit_for_bit(recipe, tmp_path):
    options = RECIPES[recipe]

    def build(seed):
        model = network(seed)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        penalty = TrimmedGroupL1(model, KEEP, **options)
        penalty.attach(optimizer)
        return model, optimizer, penalty

    whole = build(0)
    train(*whole, 60)
    half = build(0)
    train(*half, 30)
    torch.save([part.state_dict() for part in half], tmp_path / "state.pt")
    resumed = build(1)
    for part, state in zip(resumed, torch.load(tmp_path / "state.pt", weights_only=True), strict=True):
        part.load_state_dict(state)
    train(*resumed, 30, start=30)
    for a, b in zip(whole[0].parameters(), resumed[0].parameters(), strict=True):
        assert torch.equal(a, b)
    for key, value in whole[2].state_dict().items():
        assert torch.equal(value, resumed[2].state_dict()[key])


def test_gradient_accumulation_counts_optimizer_steps():
    X, y = problem()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    penalty = TrimmedGroupL1(model, KEEP, h_schedule=None)
    penalty.attach(optimizer)
    for k in range(8):
        (nn.functional.mse_loss(model(X), y) / 4).backward()
        if k % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    assert int(penalty.step) == 2
    assert nonzero(penalty) == KEEP


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": 1.0},
        {"alpha": 1.0, "mode": "bcd", "mask_ones": True},
    ],
)
def test_a_step_that_the_scaler_skips_is_no_step(fused, options):
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=fused)
    penalty = TrimmedGroupL1(model, KEEP, freeze_at=3, tau=1.0, **options)
    penalty.attach(optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    train(model, optimizer, penalty, 2, scaler=scaler)
    assert int(penalty.step) == 2
    before = [p.detach().clone() for p in model.parameters()]
    state = penalty.state_dict()
    X, y = problem()
    optimizer.zero_grad()
    scaler.scale(nn.functional.mse_loss(model(X), y)).backward()
    model[0].weight.grad[0, 0] = torch.inf
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0
    for p, q in zip(model.parameters(), before, strict=True):
        assert torch.equal(p, q)
    for key, value in penalty.state_dict().items():
        assert torch.equal(value, state[key]), key
    train(model, optimizer, penalty, 1, scaler=scaler, start=2)
    assert int(penalty.step) == 3
    assert bool(penalty.frozen)
    assert nonzero(penalty) == KEEP


def test_autocast_and_scaler_train_to_the_size():
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    penalty = TrimmedGroupL1(model, KEEP, h_schedule=Ramp(5, 30))
    penalty.attach(optimizer)

    def forward(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float()

    train(model, optimizer, penalty, 40, forward, torch.amp.GradScaler("cpu"))
    assert nonzero(penalty) == KEEP
    assert model[0].weight.dtype == torch.float32


@pytest.mark.filterwarnings("ignore:finalize_ cuts groups that are not zero")
@pytest.mark.parametrize("options", [{}, {"alpha": 3.0}, {"alpha": 1.0, "mode": "bcd"}])
def test_bfloat16(options):
    model = network().to(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    penalty = TrimmedGroupL1(model, KEEP, **options)
    penalty.attach(optimizer)
    X, y = (a.to(torch.bfloat16) for a in problem())
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(X), y).backward()
        optimizer.step()
    penalty.finalize_()
    assert nonzero(penalty) == KEEP
    assert model[0].weight.dtype == torch.bfloat16
    assert all(torch.isfinite(p).all() for p in model.parameters())
    assert penalty.weights()["0"].dtype == torch.float32


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own, as it loads its compiler
def test_compiled_models_and_optimizers_train_the_same():
    results = []
    for compiled in (False, True):
        model = network()
        forward = torch.compile(model, backend="aot_eager") if compiled else model
        optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
        penalty = TrimmedGroupL1(forward, KEEP, h_schedule=Ramp(1, 6), freeze_at=8)
        penalty.attach(optimizer)
        if compiled:
            optimizer.step = torch.compile(optimizer.step, backend="eager")
        train(model, optimizer, penalty, 10, forward)
        assert nonzero(penalty) == KEEP
        assert int(penalty.step) == 10
        results.append([p.detach() for p in model.parameters()])
    torch._dynamo.reset()
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


class Twins(nn.Module):
    """Two linear layers side by side."""

    def __init__(self, weights):
        super().__init__()
        self.weight = nn.Parameter(torch.stack(weights))

    def trimmed_groups(self, kind):
        return self.weight.shape[2], (Slab(self, "weight", 1),), (2,)


@pytest.mark.parametrize(
    "options", [{"alpha": math.inf}, {"alpha": 1.0}, {"alpha": 0.3, "mode": "bcd", "tau": 0.1}]
)
def test_replicas_train_as_they_would_alone(options):
    X, y = problem()
    torch.manual_seed(0)
    start = [torch.randn(1, 12), torch.randn(1, 12)]
    alone = []
    for weight, keep in zip(start, (2, 5), strict=True):
        layer = nn.Linear(12, 1, bias=False)
        layer.weight.data.copy_(weight)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
        TrimmedGroupL1(layer, {"": keep}, h_schedule=Ramp(5, 25), **options).attach(optimizer)
        for _ in range(40):
            optimizer.zero_grad()
            (X @ layer.weight.T - y).square().mean().backward()
            optimizer.step()
        alone.append(layer.weight.detach())
    both = Twins(start)
    optimizer = torch.optim.Adam(both.parameters(), lr=0.02)
    TrimmedGroupL1(both, {"": [2, 5]}, h_schedule=Ramp(5, 25), **options).attach(optimizer)
    for _ in range(40):
        optimizer.zero_grad()
        (X @ both.weight.transpose(1, 2) - y).square().mean(dim=(1, 2)).sum().backward()
        optimizer.step()
    torch.testing.assert_close(both.weight.detach(), torch.stack(alone), rtol=1e-4, atol=1e-5)


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@cuda
def test_the_penalty_follows_the_model_to_its_device():
    model = network()
    penalty = TrimmedGroupL1(model, KEEP)
    model.cuda()
    assert penalty.kept()["0"].is_cuda
    penalty.attach(torch.optim.SGD(model.parameters(), lr=0.1))


@cuda
@pytest.mark.parametrize("own_graph", [False, True])
@pytest.mark.parametrize("options", [{}, {"alpha": 3.0}, {"alpha": 1.0, "mode": "bcd", "tau": 0.1}])
def test_a_captured_step_is_the_same(options, own_graph):
    """The hook inside a graph of the whole step, and the hook as a graph of its own."""
    X, y = (a.cuda() for a in problem())
    results = []
    for captured in (False, True):
        model = network().cuda()
        optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01).cuda(), capturable=True)
        graph_now = captured and own_graph
        penalty = TrimmedGroupL1(
            model, KEEP, h_schedule=Ramp(5, 20), freeze_at=25, cuda_graph=graph_now, **options
        )
        penalty.attach(optimizer)

        def step(model=model, optimizer=optimizer):
            optimizer.zero_grad(set_to_none=False)
            nn.functional.mse_loss(model(X), y).backward()
            optimizer.step()

        if captured and not own_graph:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            for _ in range(27):
                graph.replay()
        else:
            for _ in range(30):
                step()
        assert int(penalty.step) == 30
        assert nonzero(penalty) == KEEP
        results.append([p.detach().clone() for p in model.parameters()])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@cuda
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
def test_no_step_waits_for_the_device():
    model = network().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for options in (
        {},
        {"alpha": 1.0, "freeze_at": 5},
        {"alpha": 1.0, "mode": "bcd"},
    ):
        penalty = TrimmedGroupL1(model, KEEP, h_schedule=Ramp(1, 5), **options)
        handle = penalty.attach(optimizer)
        X, y = (a.cuda() for a in problem())
        nn.functional.mse_loss(model(X), y).backward()
        optimizer.step()
        try:
            torch.cuda.set_sync_debug_mode("error")
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        handle.remove()


@cuda
def test_an_own_graph_sees_new_rates_and_new_tensors():
    model = network().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    penalty = TrimmedGroupL1(model, {"0": 3}, alpha=1.0, cuda_graph=True)
    penalty.attach(optimizer)
    for k, rate in enumerate((0.0, 0.0, 0.0, 0.01, 0.01, 0.02)):
        optimizer.param_groups[0]["lr"] = rate
        if k == 4:
            model[0].weight.data = model[0].weight.data.clone()
        before = penalty.layers["0"].norms().detach()
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
        drop = (before - penalty.layers["0"].norms().detach()).sort().values
        torch.testing.assert_close(drop[3:], torch.full((9,), rate).cuda(), rtol=1e-3, atol=1e-6)
