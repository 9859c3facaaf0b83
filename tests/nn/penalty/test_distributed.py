"""Two processes: with DistributedDataParallel, and with parameters that are sharded by fully_shard."""

import math
import subprocess
import sys
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn

from trimreg.nn import Budget, Ramp, TrimmedGroupL1, bayesianize

KEEP = {"0": 3, "2": 8}


def problem(n=256, p=12):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, p, generator=generator)
    return X, (X[:, 2] - X[:, 5].abs() + X[:, 7] * 1.5)[:, None]


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 1))


def train_copies(rank):
    """States of networks that each process has a copy of, trained on its own half of the data."""
    X, y = problem()
    states = []
    for mode in (
        "exact",
        "bcd",
        "subgradient",
        "budget",
    ):  # w by draws of the weights, which must be the same ones
        model = network(seed=rank)  # made equal by the wrapper
        if mode == "exact":
            options = {"h_schedule": Ramp(3, 15), "freeze_at": 18}
        elif mode == "budget":
            options = {"h_schedule": Ramp(3, 9), "example_input": X[:2]}
        else:
            bayesianize(model, initial_log_alpha=-1.0)
            options = {"mode": mode, "tau": 1.0}
        parallel = nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.Adam(parallel.parameters(), lr=0.01)
        keep = Budget(parameters=0.4) if mode == "budget" else KEEP
        penalty = TrimmedGroupL1(parallel, keep, alpha=2.0, **options)
        penalty.attach(optimizer)
        torch.manual_seed(rank)
        for k in range(20 if mode == "exact" else 10):
            rows = torch.arange(32) + 32 * ((2 * k + rank) % 8)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(parallel(X[rows]), y[rows])
            (loss + penalty.loss() if mode == "subgradient" else loss).backward()
            optimizer.step()
        states += [model.state_dict(), penalty.state_dict()]
    return states


class Reader(nn.Module):
    """Attention, a convolution and linear layers; few of their sizes are even."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.conv = nn.Conv1d(12, 7, 2)
        self.hidden = nn.Linear(7 * 4, 9)
        self.last = nn.Linear(9, 1)

    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = self.conv(x.transpose(1, 2)).relu().flatten(1)
        return self.last(self.hidden(x).relu())


#: Groups along the axis that is divided (heads, rows, hidden outputs) and across it (heads, inputs).
SIZES = {"attention": 2, "conv": 4, "hidden": 5, "last": 3}
GROUPS = {"attention": "heads", "conv": "out", "hidden": "out", "last": "in"}
SHARDED = [
    {"rank_by": "taylor", "h_schedule": Ramp(1, 5)},
    {"alpha": 4.0, "freeze_at": 7},
    {"alpha": 0.5, "mode": "bcd", "tau": 0.1},
    {"groups": {**GROUPS, "attention": "width"}},
]


def train_sharded(rank, options):
    """Train on half of every batch, or with rank None in one process on all of it: parameters and sizes."""
    torch.manual_seed(0)
    model = Reader()
    if rank is not None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (2,))
        for module in (model.conv, model.hidden):
            fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
    # Adam would divide the rounding in gradients that are 0, such as those of the biases of keys.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    penalty = TrimmedGroupL1(model, SIZES, **{"groups": GROUPS, **options})
    handle = penalty.attach(optimizer)
    generator = torch.Generator().manual_seed(1)
    for k in range(8):
        if k == 4:  # as after a checkpoint
            handle.remove()
            state, penalty = (
                penalty.state_dict(),
                TrimmedGroupL1(model, SIZES, **{"groups": GROUPS, **options}),
            )
            penalty.load_state_dict(state)
            penalty.attach(optimizer)
        X = torch.randn(8, 5, 12, generator=generator)
        if rank is not None:
            X = X[4 * rank : 4 * rank + 4]
        optimizer.zero_grad()
        (model(X) - X[:, :1, 0]).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        model(X)  # the outermost layers stay gathered
    penalty.freeze_()
    found = {
        name: part.full_tensor() if rank is not None else part for name, part in model.named_parameters()
    }
    kept = {f"kept {name}": mask for name, mask in penalty.kept().items()}
    norms = {f"norms {name}": layer.norms() for name, layer in penalty.layers.items()}
    return {name: tensor.detach() for name, tensor in (found | kept | norms).items()}


def refusals():
    """What is said of sharded parameters that a penalty cannot be computed for."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, said = bayesianize(nn.Sequential(nn.Linear(4, 3))), []
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    for options in ({"mode": "subgradient"}, {"mode": "bcd"}, {"alpha": math.inf, "rank_by": "activity"}):
        with pytest.raises(NotImplementedError) as refused:
            TrimmedGroupL1(model, {"0": 2}, **{"alpha": 1.0, **options})
        said.append(str(refused.value))
    with pytest.raises(NotImplementedError, match="example_input needs whole parameters"):
        TrimmedGroupL1(model, Budget(macs=0.5), example_input=torch.randn(2, 4))
    return said


def worker(rank, folder):
    """One of two processes."""
    torch.set_num_threads(1)
    meeting = {"init_method": f"file://{folder}/meeting", "timeout": timedelta(minutes=5)}
    dist.init_process_group("gloo", rank=rank, world_size=2, **meeting)
    found = [train_copies(rank), [train_sharded(rank, options) for options in SHARDED], refusals()]
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What the two processes found."""
    folder = tmp_path_factory.mktemp("processes")
    other = subprocess.Popen([sys.executable, __file__, "1", folder])
    try:
        worker(0, folder)  # this process is one of the two: it has imported all there is to import
        assert other.wait(timeout=300) == 0
    finally:
        other.kill()
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


needs_processes = pytest.mark.skipif(
    not dist.is_available() or sys.platform == "win32", reason="needs torch.distributed"
)


@needs_processes
def test_two_processes_stay_identical(both):
    first, second = (found[0] for found in both)
    for mine, other in zip(first, second, strict=True):
        assert mine.keys() == other.keys()
        for key in mine:
            assert torch.equal(mine[key], other[key]), key
    assert bool(first[1]["frozen"])
    assert bool(first[-1]["budget.decided"])
    assert int((first[0]["0.weight"].norm(dim=0) > 0).sum()) == KEEP["0"]


@needs_processes
@pytest.mark.parametrize("case", range(len(SHARDED)))
def test_sharded_networks_are_those_of_one_process(case, both):
    one = train_sharded(None, SHARDED[case])
    for found in both:
        mine = found[1][case]
        assert mine.keys() == one.keys()
        for key, tensor in one.items():
            torch.testing.assert_close(mine[key], tensor, rtol=1e-4, atol=1e-5)
        for name, size in SIZES.items():
            assert (mine[f"kept {name}"].sum(-1) == size).all()
            assert torch.equal(mine[f"norms {name}"] > 0, mine[f"kept {name}"])


@needs_processes
def test_what_needs_whole_parameters_is_refused(both):
    for found in both:
        assert all("sharded over processes need mode 'exact'" in said for said in found[2])


if __name__ == "__main__":
    worker(int(sys.argv[1]), sys.argv[2])
