"""Recipes: every choice of a training, and what it says at a step."""

import math

import pytest

from trimreg_reproduction.networks.training import recipes
from trimreg_reproduction.networks.training.architectures import LAYERS, format_size, macs, parse_size
from trimreg_reproduction.networks.training.recipes import (
    OURS,
    PAPER,
    Recipe,
    for_method,
    get_recipe,
    kl_weights,
    learning_rates,
)

BASE = Recipe()  # ours is tuned, and its values change


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"form": "dense"}, "form must be one of"),
        ({"kl": "N"}, "kl must be one of"),
        ({"criterion": "size"}, "criterion must be one of"),
        ({"decay_from": 1.5}, "decay_from is a fraction"),
        ({"shrink_from": -0.1}, "shrink_from is a fraction"),
        ({"input_dropout": 1.2}, "input_dropout must be from 0 to 1"),
        ({"epochs": 0}, "epochs and batch"),
        ({"batch": 0}, "epochs and batch"),
        ({"shrink_from": 0.5}, "is after shrink_until"),
        ({"freeze_at": 0.4}, "freeze_at = 0.4 must be from shrink_until"),
        ({"freeze_at": 1.1}, "freeze_at = 1.1"),
        ({"criterion": "taylor", "alpha": 1.0}, "alpha=inf"),
        ({"criterion": "activity", "mode": "bcd", "alpha": 1.0}, "alpha=inf"),
    ],
)
def test_bad_choices_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        BASE.change(**changes)


def test_the_paper_s_recipe():
    numbers = {"epochs": 122, "batch": 100, "learning_rate": 1e-3, "tau": 1e-3, "alpha": 1e-4}
    choices = {"initial_log_alpha": -10, "kl": "paper", "mode": "subgradient", "masked_forward": True}
    for name, value in (numbers | choices | {"freeze_at": None}).items():
        assert getattr(PAPER, name) == value, name
    assert set(learning_rates(PAPER, 50)) == {1e-3}
    assert set(kl_weights(PAPER, 50)) == {1.0}
    assert PAPER.label_smoothing == PAPER.weight_decay == 0


def test_learning_rates_are_constant_and_then_fall():
    rates = learning_rates(BASE.change(learning_rate=0.5, decay_from=0.4, final_rate=0.1), 200)
    assert len(rates) == 200
    assert set(rates[:80]) == {0.5}
    assert rates[80:] == sorted(rates[80:], reverse=True)
    assert rates[140] == pytest.approx(0.5 * (0.1 + 0.9 * 0.5))  # half way
    assert rates[-1] == pytest.approx(0.05, rel=2e-3)
    assert learning_rates(BASE, 100)[-1] < 1e-5


def test_the_weight_of_the_divergence_rises():
    assert kl_weights(BASE.change(kl_ramp=0.5, kl_scale=2.0), 4) == [0.0, 1.0, 2.0, 2.0]
    assert kl_weights(BASE.change(kl_ramp=0.0), 2) == [1.0, 1.0]


def test_recipes_of_tables():
    for table in recipes.CHANGES:
        for name in ("ours", "paper"):
            full = get_recipe(table, name)
            assert full.name == name
            assert full.epochs >= 40 > 5 >= full.change(**recipes.QUICK).epochs
    assert get_recipe("tab1", "paper").form == "plain"
    assert get_recipe("tab2", "paper").form == get_recipe("tab3", "paper").form == "bayes"
    with pytest.raises(ValueError, match="no recipe 'theirs'"):
        get_recipe("tab1", "theirs")


def test_methods_change_how_to_shrink_and_nothing_else():
    for method in ("dense", "trimmed", "group l1", "torchao PAT"):
        assert for_method(BASE, method, "LeNet-5") == BASE
    cut = for_method(BASE.change(criterion="activity"), "magnitude", "LeNet-5")
    assert cut.shrink_from == cut.shrink_until == cut.freeze_at == BASE.freeze_at
    assert (cut.criterion, cut.alpha, cut.mode) == ("norm", math.inf, "exact")
    assert learning_rates(cut, 60) == learning_rates(BASE, 60)
    assert for_method(PAPER, "magnitude", "LeNet-5").freeze_at == 0.45
    for method in ("gradual magnitude", "soft"):
        assert for_method(OURS, method, "LeNet-5") == OURS.change(criterion="norm")
    assert for_method(OURS, "bcd", "LeNet-5") == OURS.change(criterion="norm", mode="bcd")
    once = for_method(OURS, "once, taylor", "LeNet-5")
    assert once == for_method(OURS, "magnitude", "LeNet-5").change(criterion="taylor")
    prices = {"l0_lambda": (1.0, 2.0, 3.0, 4.0), "l0_lambda_separate": (5.0, 6.0, 7.0, 8.0)}
    gates = for_method(BASE.change(**prices), "l0 separate", "LeNet-300-100")
    assert (gates.form, gates.kl, gates.l0_lambda) == ("l0", "none", (5.0, 6.0, 7.0))
    assert for_method(BASE.change(**prices), "l0", "LeNet-5").l0_lambda == (1.0, 2.0, 3.0, 4.0)


# -- sizes -----------------------------------------------------------------------------------------------


def test_sizes():
    assert parse_size("LeNet-5", "8-17-53-19") == {"conv1": 8, "conv2": 17, "fc1": 53, "fc2": 19}
    for network, layers in LAYERS.items():
        assert parse_size(network, format_size(layers)) == layers == parse_size(network, "full")
    for size, message in (
        ("785-1-1", "layer fc1 of LeNet-300-100 has 784 groups"),
        ("10-0-1", "cannot keep 0"),
        ("10-a-1", "has 3 numbers"),
        ("10-10", "has 3 numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_size("LeNet-300-100", size)
    with pytest.raises(ValueError, match="no network 'LeNet-7'"):
        parse_size("LeNet-7", "full")


def test_multiplications():
    assert macs("LeNet-300-100", parse_size("LeNet-300-100", "7-5-3")) == 7 * 5 + 5 * 3 + 30
    by_hand = 24 * 24 * 25 * 2 + 8 * 8 * 25 * 2 * 3 + 5 * 7 + 70
    assert macs("LeNet-5", parse_size("LeNet-5", "2-3-5-7")) == by_hand
