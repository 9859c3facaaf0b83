"""What a step of the penalty takes: memory beside the model, and rankings."""

import weakref

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trimreg.nn import TrimmedGroupL1


class Allocated(TorchDispatchMode):
    """The most bytes that live at once in storages made inside, apart from those that were there before."""

    def __init__(self, known):
        super().__init__()
        self.known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.made, self.most = [], 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in self.known:
                self.made.append((weakref.ref(tensor), tensor.untyped_storage()))
        self.made = [(alive, storage) for alive, storage in self.made if alive() is not None]
        self.most = max(self.most, sum({s.data_ptr(): s.nbytes() for _, s in self.made}.values()))
        return result


def by_inputs():
    return nn.Sequential(nn.Linear(2048, 2048, bias=False), nn.ReLU(), nn.Linear(2048, 2048, bias=False))


def of_shared_channels():
    return nn.Sequential(nn.Conv2d(512, 512, 3), nn.BatchNorm2d(512), nn.ReLU(), nn.Conv2d(512, 512, 3))


OPTIONS = [{}, {"rank_by": "taylor"}, {"alpha": 0.1}, {"alpha": 1e-3, "mode": "bcd"}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_memory_beside_the_model_is_a_hundredth(options):
    """The tables of the penalty and all that a step makes, kept or not."""
    model = by_inputs()
    assert_little(model, TrimmedGroupL1(model, {"*": 1000}, **options))


def test_memory_beside_coupled_channels_is_a_hundredth():
    model = of_shared_channels()
    penalty = TrimmedGroupL1(
        model, {"0": 100}, rank_by="taylor", example_input=torch.zeros(1, 512, 6, 6), groups="channels"
    )
    assert_little(model, penalty)


def assert_little(model, penalty):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    penalty.attach(optimizer)
    tables = sum(buffer.numel() * buffer.element_size() for buffer in penalty.buffers())
    known = [*model.parameters(), *(parameter.grad for parameter in model.parameters()), *penalty.buffers()]
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    with Allocated(known) as allocated:
        optimizer.step()
    assert (tables + allocated.most) / weights <= 0.01, (tables / weights, allocated.most / weights)
    # The measure sees what a temporary of the size of a layer would take.
    with Allocated(known) as allocated:
        _ = model[0].weight.detach() * 2.0
    assert allocated.most == model[0].weight.numel() * 4


@pytest.mark.parametrize("skipped", [0, 2])
def test_what_was_cut_stays_zero_between_rankings(skipped):
    """Also if a scaler skips the first steps."""
    model = nn.Linear(6, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.arange(1.0, 7.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, fused=True)
    penalty = TrimmedGroupL1(model, {"": 3}, h_schedule=None, rank_every=3)
    penalty.attach(optimizer)
    model.weight.grad = torch.zeros_like(model.weight)
    alive = []
    for step in range(7):
        optimizer.found_inf = torch.tensor(float(step < skipped))
        if step:
            with torch.no_grad():
                model.weight[0, 0] = 10.0  # as if the step had made it the largest
        optimizer.step()
        alive.append(((model.weight[0] > 0).nonzero()[:, 0] + 1).tolist())
    first, again = [4, 5, 6], [1, 5, 6]
    if skipped:
        assert alive == [[1, 2, 3, 4, 5, 6]] * 2 + [first, again, again, again, again]
    else:
        assert alive == [first, first, first, again, again, again, again]


def test_a_long_fall_is_ranked_at_every_fourth_step():
    """The sizes at every step are those of h at the last ranking, and are met when h has fallen."""
    model = nn.Linear(50, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for steps, every in ((800, 4), (100, 1)):
        nn.init.uniform_(model.weight, 1.0, 2.0)
        penalty = TrimmedGroupL1(model, {"": 5}, steps=steps)
        model.weight.grad = torch.zeros_like(model.weight)
        with penalty.attach(optimizer):
            sizes, wanted = [], []
            for step in range(int(0.6 * steps) + 8):
                optimizer.step()
                sizes.append(int((model.weight != 0).sum()))
                wanted.append(int(penalty.h()[""]) if step % every == 0 else wanted[-1])
        assert sizes == wanted
        assert sizes[-1] == 5
        assert bool(penalty.frozen)


@pytest.mark.parametrize("attached_first", [False, True])
def test_rankings_go_on_in_time_after_a_break(attached_first):
    """A group that is large from step 5 on returns at step 6, not right after the break."""
    found = []
    for resumed in (False, True):
        layer = nn.Linear(6, 1, bias=False)
        with torch.no_grad():
            layer.weight.copy_(torch.arange(1.0, 7.0))
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
        penalty = TrimmedGroupL1(layer, {"": 3}, h_schedule=None, rank_every=3)
        handle, alive = penalty.attach(optimizer), []
        layer.weight.grad = torch.zeros_like(layer.weight)
        for step in range(8):
            if resumed and step == 5:
                handle.remove()
                state, penalty = (
                    penalty.state_dict(),
                    TrimmedGroupL1(layer, {"": 3}, h_schedule=None, rank_every=3),
                )
                if attached_first:
                    penalty.attach(optimizer)
                penalty.load_state_dict(state)
                if not attached_first:
                    penalty.attach(optimizer)
            with torch.no_grad():
                layer.weight[0, 0] = 10.0 if step >= 5 else 1.0
            optimizer.step()
            alive.append(bool(layer.weight[0, 0] > 0))
        found.append(alive)
    assert found[0] == found[1] == [False] * 6 + [True] * 2
