"""The default of a hard penalty: h falls by itself, and says what it cuts if the training ends too early."""

import copy
import functools
import re

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LinearLR,
    OneCycleLR,
    PolynomialLR,
    SequentialLR,
    StepLR,
)

from trimreg.nn import Ramp, TrimmedGroupL1, export
from trimreg.nn.penalty.fall import usual_steps
from trimreg.nn.penalty.length import scheduler_of, ticks

KEEP = {"0": 3, "2": 8}


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 1))


def built(make=None, seed=0, **options):
    model = network(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = None if make is None else make(optimizer)
    penalty = TrimmedGroupL1(model, KEEP, **options)
    penalty.attach(optimizer)
    return model, optimizer, penalty, scheduler


def train(parts, steps, start=0, epoch=1):
    """Steps with random gradients; the scheduler is stepped after each epoch."""
    model, optimizer, _, scheduler = parts
    for step in range(start, start + steps):
        draw = torch.Generator().manual_seed(step)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=draw)
        optimizer.step()
        if scheduler is not None and (step + 1) % epoch == 0:
            scheduler.step()


def span(penalty):
    return int(penalty.h_schedule.begin), int(penalty.h_schedule.end)


def sizes(penalty):
    return {name: int((layer.norms() > 0).sum()) for name, layer in penalty.layers.items()}


# -- when it falls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "epoch", "end"),
    [
        (lambda o: CosineAnnealingLR(o, 40), 1, 24),
        (lambda o: CosineAnnealingLR(o, 8), 5, 25),  # of 40 steps, 5 of which have passed
        (lambda o: OneCycleLR(o, 0.1, total_steps=40), 1, 24),
        (lambda o: LinearLR(o, 1.0, 0.1, total_iters=40), 1, 24),
        (lambda o: PolynomialLR(o, total_iters=20), 2, 24),
        (lambda o: SequentialLR(o, [LinearLR(o), CosineAnnealingLR(o, 35)], [5]), 1, 24),
    ],
)
def test_the_length_is_read_from_the_scheduler(make, epoch, end):
    parts = built(make)
    penalty = parts[2]
    train(parts, epoch, epoch=epoch)
    assert sizes(penalty) == {"0": 12, "2": 16}  # it waits
    train(parts, 30 - epoch, start=epoch, epoch=epoch)
    assert span(penalty)[1] == end
    assert bool(penalty.frozen)
    assert sizes(penalty) == KEEP


def test_a_known_span_is_a_cubic_ramp():
    parts = built(steps=100)
    ramp = Ramp(5, 60)
    for step in (4, 20, 60):
        train(parts, step - int(parts[2].step), start=step)
        assert int(parts[2].h()["0"]) == round(12 - 9 * ramp(step))
    assert bool(parts[2].frozen)


def test_without_a_scheduler_that_ends_it_falls_over_the_first_steps():
    for make in (None, lambda o: StepLR(o, 5), lambda o: LinearLR(o), lambda o: CosineAnnealingLR(o, 1)):
        parts = built(make)
        train(parts, 2, epoch=5)
        assert span(parts[2]) == usual_steps(9) == (13, 255)


def test_lengths_of_schedulers():
    optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
    assert scheduler_of(optimizer) is None
    cosine = CosineAnnealingLR(optimizer, 30)
    assert scheduler_of(optimizer) is cosine
    chained = lr_scheduler.ChainedScheduler([cosine, StepLR(optimizer, 3)])
    assert ticks(chained) == 30
    assert scheduler_of(optimizer) is chained
    rule = functools.partial(lambda step, num_training_steps: 1.0, num_training_steps=70)
    assert ticks(lr_scheduler.LambdaLR(optimizer, rule)) == 70
    assert ticks(lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)) == 0


def test_a_step_to_freeze_at_ends_the_fall_and_a_soft_penalty_has_none():
    assert span(TrimmedGroupL1(network(), KEEP, freeze_at=120)) == (10, 120)
    assert TrimmedGroupL1(network(), KEEP, alpha=1.0).h_schedule is None
    assert TrimmedGroupL1(network(), KEEP, h_schedule=None).freeze_at is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"steps": 0}, ValueError),
        ({"steps": 2.5}, TypeError),
        ({"steps": 10, "freeze_at": 5}, ValueError),
        ({"steps": 10, "h_schedule": Ramp(0, 5)}, ValueError),
        ({"steps": 10, "alpha": 1.0}, ValueError),
    ],
)
def test_bad_steps_are_refused(options, error):
    with pytest.raises(error, match="steps"):
        TrimmedGroupL1(network(), KEEP, **options)


# -- its state ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [3, 5, 6, 12])
@pytest.mark.parametrize("make", [lambda o: CosineAnnealingLR(o, 8), None])
def test_a_resumed_fall_is_one_without_a_break(make, broken):
    whole = built(make)
    train(whole, 20, epoch=5)
    first, second = built(make), built(make, seed=1)
    train(first, broken, epoch=5)
    for part, saved in zip(second, first, strict=True):
        if part is not None:
            part.load_state_dict(copy.deepcopy(saved.state_dict()))
    train(second, 20 - broken, start=broken, epoch=5)
    assert span(second[2]) == span(whole[2])
    for a, b in zip(whole[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(a, b)
    for key, value in whole[2].state_dict().items():
        assert torch.equal(value, second[2].state_dict()[key]), key


def test_a_state_from_before_the_fall_is_that_of_a_finished_one():
    old = built(h_schedule=None)
    train(old, 3)
    new = built()
    new[0].load_state_dict(old[0].state_dict())
    new[2].load_state_dict(old[2].state_dict())
    train(old, 1, start=3)
    kept = old[2].kept()
    train(new, 2, start=3)
    assert sizes(new[2]) == KEEP
    assert all(torch.equal(kept[name], mask) for name, mask in new[2].kept().items())
    old[2].load_state_dict(new[2].state_dict())  # and back: a penalty without a fall ignores it


# -- warnings ----------------------------------------------------------------------------------------------


def test_a_training_that_is_too_short_is_told_with_the_norm_and_the_advice():
    parts = built()
    train(parts, 100)
    model, _, penalty, _ = parts
    cut = model[0].weight.norm(dim=0)[~penalty.kept()["0"]]
    told = f"{int((cut > 0).sum())} of layer '0' (norm {float(cut.norm().detach()):.3g}, of "
    for action in (lambda: export(model, penalty, torch.randn(4, 12), repeats=0), penalty.finalize_):
        with pytest.warns(UserWarning, match=re.escape(told)) as caught:
            small = action()
        assert len(caught) == 1
        assert caught[0].filename == __file__
        assert "ended at step 100, but h falls to step 255" in str(caught[0].message)
        assert "attach(optimizer, steps=100)" in str(caught[0].message)
        if small is not None:
            assert small.report.masked_difference <= 1e-5 < small.report.difference
            assert "because groups were cut" in str(small)
    small = export(model, penalty, torch.randn(4, 12), repeats=0)  # nothing is left to cut
    assert small.report.difference == small.report.masked_difference
    assert "because" not in str(small)


def test_other_reasons_to_cut_are_told():
    with pytest.warns(UserWarning, match="has never taken a step: attach it"):
        built()[2].finalize_()
    for options, reason in (
        ({"h_schedule": Ramp(2, 50)}, "h_schedule has not ended at step 3"),
        ({"alpha": 1e-6}, "soft penalty is too weak"),
    ):
        parts = built(**options)
        train(parts, 3)
        with pytest.warns(UserWarning, match=reason):
            parts[2].finalize_()
    waiting = built(lambda o: CosineAnnealingLR(o, 8))
    train(waiting, 3, epoch=5)
    with pytest.warns(UserWarning, match="waits for the learning-rate scheduler to be stepped"):
        waiting[2].finalize_()
    parts = built(steps=10)
    train(parts, 8)
    parts[2].handle.remove()
    train(parts, 1)
    with pytest.warns(UserWarning, match="after the last step of the penalty"):
        parts[2].finalize_()


def test_a_cut_on_purpose_is_silent():
    model = network()
    penalty = TrimmedGroupL1(model, KEEP)
    penalty.freeze_()
    penalty.finalize_()
    assert sizes(penalty) == KEEP
