"""Schedules: the same fraction on the host and on a device."""

import math

import pytest
import torch

from trimreg.nn import Constant, Ramp


@pytest.mark.parametrize("power", [1, 3, 0.5])
def test_a_ramp_rises_from_0_to_1(power):
    ramp = Ramp(10, 50, power)
    values = [ramp(step) for step in range(70)]
    assert values[:11] == [0.0] * 11
    assert values[50:] == [1.0] * 20
    assert values == sorted(values)
    assert ramp(30) == pytest.approx(1 - 0.5**power)


def test_a_tensor_gives_the_same_as_an_integer():
    ramp = Ramp(7, 1_007)
    steps = torch.arange(0, 1_200, 13)
    expected = [ramp(int(step)) for step in steps]
    torch.testing.assert_close(ramp(steps), torch.tensor(expected), rtol=0, atol=1e-6)
    assert ramp(torch.tensor(7)).item() == 0.0
    assert ramp(torch.tensor(1_007)).item() == 1.0


def test_a_ramp_without_length_is_a_jump():
    jump = Ramp(5, 5)
    assert [jump(step) for step in (4, 5, 6)] == [0.0, 1.0, 1.0]
    assert jump(torch.tensor([4, 5, 6])).tolist() == [0.0, 1.0, 1.0]


def test_constant_is_one():
    assert Constant()(0) == 1.0
    assert Constant()(torch.tensor(3)).item() == 1.0


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((5, 4), ValueError, "begin=5, end=4"),
        ((-1, 4), ValueError, "0 <= begin"),
        ((0, 4, 0), ValueError, "power"),
        ((0, 4, math.nan), ValueError, "power"),
        ((True, 4), TypeError, "begin"),
        ((0, "4"), TypeError, "end"),
        ((0, math.inf), TypeError, "end"),
    ],
)
def test_bad_ramps_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        Ramp(*arguments)
