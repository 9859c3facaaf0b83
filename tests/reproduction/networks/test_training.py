"""The engine: many networks as one, and what prunes them."""

import copy
import dataclasses
import types

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from trimreg.nn.penalty import rules
from trimreg.penalties import simplex
from trimreg_reproduction.networks.training import trial as trials
from trimreg_reproduction.networks.training.architectures import layers_of
from trimreg_reproduction.networks.training.data import load_splits
from trimreg_reproduction.networks.training.loop import (
    Lessons,
    Split,
    Trainer,
    compiled,
    make_optimizer,
    matmul_precision,
    steps_per_epoch,
    sum_of_lessons,
    sum_of_losses,
    wrong_answers,
)
from trimreg_reproduction.networks.training.models import build, plain_network
from trimreg_reproduction.networks.training.pruners import L0, GroupL1, Pruner, Trimmed
from trimreg_reproduction.networks.training.recipes import PAPER, Recipe, for_method
from trimreg_reproduction.networks.training.trial import Trial, rows_of, seeded, train

MLP = "LeNet-300-100"
NAMES = list(layers_of(MLP))
SHORT = Recipe(form="plain", epochs=3, batch=40)
STEPS = 3 * (360 // 40)


@pytest.fixture
def split(no_mnist):
    return load_splits("mnist", MLP)["train"]


def fit(split, recipe, make, seeds=(0, 1), noise=7):
    """A trained model with its trainer; ``make`` builds the pruner from a model."""
    with seeded(noise, torch.device("cpu")):
        model = build(MLP, seeds, recipe)
        trainer = Trainer(model, split, recipe, make(model))
        return trainer, trainer.fit({"train": split})


def trimmed(keep, recipe, steps=STEPS):
    return lambda model: Trimmed(model, keep, recipe, steps)


# -- losses and answers -----------------------------------------------------------------------------------


def test_the_loss_is_the_sum_of_the_replicas_losses():
    torch.manual_seed(0)
    logits, labels = torch.randn(3, 8, 10), torch.randint(0, 10, (8,))
    smooth = Recipe(label_smoothing=0.1)
    alone = sum(functional.cross_entropy(one, labels, label_smoothing=0.1) for one in logits)
    torch.testing.assert_close(sum_of_losses(logits, labels, smooth), alone)


def test_pupils_learn_from_the_mean_logits_of_teachers_which_learn_from_labels():
    torch.manual_seed(0)
    logits, labels = torch.randn(4, 8, 10, requires_grad=True), torch.randint(0, 10, (8,))
    lessons = Lessons(torch.tensor([0.7, 0.0, 0.0, 0.0]), torch.tensor([3.0, 2.0, 1.0, 1.0]), 2)
    alone = sum_of_losses(logits[1:], labels, Recipe()) + 0.3 * functional.cross_entropy(logits[0], labels)
    taught = functional.softmax(logits[2:].detach().mean(0) / 3.0, -1)
    by_hand = alone + 0.7 * 9.0 * functional.cross_entropy(logits[0] / 3.0, taught)
    answer = sum_of_lessons(logits, labels, lessons)
    torch.testing.assert_close(answer, by_hand)
    torch.testing.assert_close(*(torch.autograd.grad(one, logits)[0] for one in (answer, by_hand)))


def test_answers_do_not_depend_on_the_batch(split):
    model = build(MLP, [0, 1], SHORT)
    by_hand = (model(split.images).argmax(-1) != split.labels).sum(-1)
    assert by_hand.shape == (2,)
    for batch in (7, 360, 1000):
        assert torch.equal(wrong_answers(model, split, batch), by_hand)
    assert model.training


def test_splits(no_mnist, images):
    splits = load_splits("mnist", MLP, validation=True)
    assert {name: len(split.labels) for name, split in splits.items()} == {
        "train": 300, "validation": 60, "test": 120,
    }  # fmt: skip
    np.testing.assert_array_equal(splits["validation"].labels, images.y_train[300:])
    seen = images.X_train[:300] / 255.0
    expected = (images.X_train[300:].reshape(60, 784) / 255.0 - seen.mean()) / seen.std()
    np.testing.assert_allclose(splits["validation"].images.numpy(), expected, rtol=1e-4, atol=1e-5)
    unit = load_splits("fashion-mnist", "LeNet-5", "unit", images=50)
    assert unit["train"].images.shape == (50, 1, 28, 28)
    assert float(unit["train"].images.max()) <= 1.0
    assert float(unit["train"].images.min()) == 0.0
    assert "validation" not in unit
    assert no_mnist == ["mnist", "fashion-mnist"]


def test_unknown_data_are_refused():
    with pytest.raises(ValueError, match="no data set 'cifar'"):
        load_splits("cifar", MLP)


# -- the engine -------------------------------------------------------------------------------------------


def test_a_replica_trains_as_if_it_were_alone(split):
    recipe = SHORT.change(weight_decay=0.01, label_smoothing=0.05)
    keep = {"fc1": [200, 60], "fc2": [50, 40], "fc3": [20, 9]}
    together, _ = fit(split, recipe, trimmed(keep, recipe))
    for index, seed in enumerate((0, 1)):
        mine = {name: [sizes[index]] for name, sizes in keep.items()}
        alone, _ = fit(split, recipe, trimmed(mine, recipe), seeds=[seed])
        for name, parameter in together.model.named_parameters():
            other = dict(alone.model.named_parameters())[name]
            torch.testing.assert_close(parameter[index], other[0], rtol=1e-3, atol=1e-5)


def test_an_ensemble_replica_is_the_plain_network_trained_in_a_plain_loop(split):
    recipe = SHORT.change(epochs=2)
    trainer, _ = fit(split, recipe, lambda model: Pruner(model, NAMES), seeds=[3])
    plain = plain_network(build(MLP, [3], recipe), 0).train()
    optimizer = torch.optim.Adam(plain.parameters(), lr=1e-3)
    steps = 2 * 9
    with seeded(7, torch.device("cpu")):
        for epoch in range(2):
            order = torch.randperm(360)
            for batch in range(9):
                done = 9 * epoch + batch
                fallen = max(0.0, (done / steps - 0.45) / 0.55)
                optimizer.param_groups[0]["lr"] = 1e-3 * 0.5 * (1 + np.cos(np.pi * fallen))
                chosen = order[40 * batch : 40 * (batch + 1)]
                optimizer.zero_grad()
                functional.cross_entropy(plain(split.images[chosen]), split.labels[chosen]).backward()
                optimizer.step()
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(
            dict(trainer.model.named_parameters())[name][0], parameter, rtol=1e-3, atol=1e-5
        )


def test_training_learns_and_sizes_are_exact_in_every_epoch(split):
    keep = {"fc1": [300, 100], "fc2": [80, 41], "fc3": [30, 17]}
    recipe = SHORT.change(epochs=6, learning_rate=3e-3)
    trainer, trained = fit(split, recipe, trimmed(keep, recipe, steps=6 * 9))
    assert trained.errors["train"].shape == (6, 2)
    assert trained.sizes.tolist() == [[[300, 80, 30], [100, 41, 17]]] * 6
    assert trained.errors["train"][-1].max() < 0.3 < trained.errors["train"][0].min()
    for name, sizes in keep.items():
        weight = trainer.model.get_submodule(name).weight
        assert (weight.abs().sum(1) > 0).sum(-1).tolist() == sizes
    # The counts are those of the model that is left.
    assert torch.equal(wrong_answers(trainer.model, split).double() / 360, trained.errors["train"][-1])
    assert not trainer.model.training


def test_the_network_that_is_tested_comes_and_goes(split):
    model = build(MLP, [0], SHORT)
    pruner = Trimmed(model, {"fc1": [50], "fc2": [20], "fc3": [10]}, SHORT, STEPS)
    trainer = Trainer(model, split, SHORT, pruner)
    trainer.order.copy_(torch.arange(360))
    trainer.advance(2)
    before = copy.deepcopy(model.state_dict())
    with trainer.as_tested() as sizes:
        assert sizes.tolist() == [[50, 20, 10]]
        assert int((model.fc1.weight.abs().sum(1) > 0).sum()) == 50
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_every_image_is_seen_once_an_epoch(split):
    model = build(MLP, [0], SHORT)
    marks = Split(torch.arange(360.0)[:, None].expand(360, 784).contiguous(), split.labels)
    trainer = Trainer(model, marks, SHORT, Pruner(model, NAMES))
    seen = []
    model.fc1.register_forward_pre_hook(lambda module, args: seen.extend(args[0][:, 0].int().tolist()))
    trainer.fit()
    assert len(seen) == 3 * 360
    epochs = [seen[360 * i : 360 * (i + 1)] for i in range(3)]
    assert all(sorted(epoch) == list(range(360)) for epoch in epochs)
    assert epochs[0] != epochs[1] != list(range(360))
    assert steps_per_epoch(399, SHORT) == 9


def test_a_graph_that_is_played_again_gives_the_same_steps(split):
    """What replays on CUDA: a captured step, or its first part where the optimizer steps outside."""

    def played(outside):
        model = build(MLP, [0], SHORT)
        trainer = Trainer(model, split, SHORT, Pruner(model, NAMES))
        trainer.pruner.steps_outside = bool(outside)
        if outside is not None:
            first = trainer.forward_backward if outside else trainer.step
            trainer._graph = types.SimpleNamespace(replay=first)
        trainer.order.copy_(torch.arange(360))
        trainer.advance(5)
        assert trainer.clock.tolist() == [5]
        return model.fc1.weight.detach()

    plain = played(None)
    assert torch.equal(plain, played(True))
    assert torch.equal(plain, played(False))


class Waiting(TorchDispatchMode):
    """Notes operations that would wait for the device, or bring values from the host."""

    WAIT = (
        "_local_scalar_dense",
        "nonzero",
        "masked_select",
        "lift_fresh",
        "equal",
        "is_nonzero",
        "_unique2",
    )

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.split("::")[1]
        self.found += [name] if name in self.WAIT else []
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("dense", {"input_dropout": 0.1}),
        ("soft", {"form": "plain"}),
        ("bcd", {"form": "plain"}),
        ("trimmed", {"criterion": "taylor"}),
        ("trimmed", {"mode": "subgradient", "alpha": 1e-4, "masked_forward": True, "freeze_at": None}),
        ("magnitude", {}),
        ("group l1", {}),
        ("l0", {}),
    ],
)
def test_a_step_never_waits_for_the_device(split, monkeypatch, method, changes):
    monkeypatch.setattr(rules, "on_host", lambda y: False)  # as on a device
    monkeypatch.setattr(simplex, "_may_look", lambda y: False)
    monkeypatch.setattr(simplex, "newton_shift", None)
    recipe = for_method(Recipe(batch=20, label_smoothing=0.1).change(**changes), method, MLP)
    trial = short_trial(method=method, recipe=recipe)
    model = build(MLP, trial.seeds, recipe)
    strengths = (0.1, 0.2) if method in ("soft", "bcd", "group l1") else None
    pruner = trials.make_pruner(trial, recipe, model, 100, 360, strengths)
    lessons = Lessons(torch.tensor([0.5, 0.0]), torch.tensor([2.0, 1.0]), 1) if method == "soft" else None
    trainer = Trainer(model, split, recipe, pruner, lessons)
    trainer.step()
    with Waiting() as waiting:
        trainer.step()
    assert waiting.found == []


def test_the_rate_is_one_tensor_for_all_parameters(split):
    recipe = SHORT.change(weight_decay=0.1, form="bayes")
    rate = torch.tensor(1e-3)
    optimizer = make_optimizer(build(MLP, [0], recipe), recipe, rate)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert all(group["lr"] is rate for group in optimizer.param_groups)
    weights, others = optimizer.param_groups
    assert (weights["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert (len(weights["params"]), len(others["params"])) == (3, 6)  # biases and noise do not decay
    assert not isinstance(make_optimizer(build(MLP, [0], SHORT), SHORT, rate), torch.optim.AdamW)


def test_input_dropout_and_noise_are_in_training_alone(split):
    recipe = SHORT.change(form="bayes", input_dropout=0.5, initial_log_alpha=-1.0)
    model = build(MLP, [0], recipe)
    trainer = Trainer(model, split, recipe, Pruner(model, NAMES))
    seen = []
    model.fc1.register_forward_pre_hook(
        lambda module, args: seen.append(float((args[0] == 0).float().mean()))
    )
    trainer.order.copy_(torch.arange(360))
    trainer.step()
    assert 0.4 < seen[0] < 0.6
    assert torch.equal(wrong_answers(model, split), wrong_answers(model, split))
    assert seen[-1] == float((split.images == 0).float().mean())


def test_the_divergence_enters_with_its_weight(split):
    gradients = {}
    for kl, scale in (("none", 1.0), ("1/N", 1.0), ("1/N", 2.0), ("paper", 1.0)):
        recipe = SHORT.change(form="bayes", kl=kl, kl_scale=scale, kl_ramp=0.0)
        model = build(MLP, [0, 1], recipe)
        trainer = Trainer(model, split, recipe, Pruner(model, NAMES))
        trainer.order.copy_(torch.arange(360))
        torch.manual_seed(0)
        trainer.forward_backward()
        gradients[kl, scale] = model.fc3.log_alpha.grad.clone()
    base = gradients["none", 1.0]
    part = gradients["1/N", 1.0] - base
    torch.testing.assert_close(gradients["1/N", 2.0] - base, 2 * part, rtol=1e-3, atol=1e-7)
    # -KL = 0.5 log a + c1 a + ...; at a = exp(-5) its slope in log a is nearly 0.5
    torch.testing.assert_close(part, torch.full_like(part, -0.5 / 360), rtol=0.05, atol=1e-6)
    by_authors = gradients["paper", 1.0] - base
    torch.testing.assert_close(by_authors, torch.full_like(part, -0.5 / 3 / 1000), rtol=0.05, atol=1e-6)


def test_a_compiler_that_is_not_there_is_not_asked_for_and_precision_is_given_back(monkeypatch):
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: False)
    assert compiled(len) is len
    before = torch.get_float32_matmul_precision()
    with matmul_precision("high"):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("default")  # the compiler of PyTorch warns of itself
@pytest.mark.parametrize("form", ["plain", "bayes", "l0"])
@pytest.mark.parametrize("network", [MLP, "LeNet-5"])
def test_compiled_gradients_are_the_plain_ones(form, network, no_mnist):
    """Of every parameter, on the same noise. PyTorch 2.11 loses slopes that a function has written out."""
    split = load_splits("mnist", network, device="cuda")["train"]
    recipe = Recipe(form=form, epochs=1, batch=40, initial_log_alpha=-2.0, kl_ramp=0.0, kl_scale=0.05)
    found = []
    for compile_it in (False, True):
        torch.manual_seed(0)
        model = build(network, [0, 1], recipe, "cuda").train()
        pruner = Pruner(model, list(layers_of(network)))
        with torch._inductor.config.patch(fallback_random=True):
            trainer = Trainer(model, split, recipe.change(compile=compile_it), pruner)
            torch.manual_seed(1)
            trainer.forward_backward()
        found.append({name: p.grad.clone() for name, p in model.named_parameters()})
    plain, fused = found
    for name, gradient in plain.items():
        assert gradient.norm() > 0, name
        distance = (fused[name] - gradient).norm() / gradient.norm()
        assert distance < 1e-3, (name, float(distance))


# -- pruners ----------------------------------------------------------------------------------------------


def test_masks_of_the_authors_leave_weights_and_take_gradients(split):
    recipe = PAPER.change(form="plain", epochs=3, batch=40)
    keep = {"fc1": [300], "fc2": [100], "fc3": [40]}
    model = build(MLP, [0], recipe)
    pruner = Trimmed(model, keep, recipe, STEPS)
    trainer = Trainer(model, split, recipe, pruner)
    cut = torch.zeros(1, 784, dtype=torch.bool)
    cut[:, 300:] = True
    weights = {"fc1": cut.float(), "fc2": torch.zeros(1, 300), "fc3": torch.zeros(1, 100)}
    pruner.penalty.weights = lambda: weights
    before = model.fc1.weight.detach().clone()
    seen = []
    model.fc1.register_forward_pre_hook(lambda module, args: seen.append(module.weight.detach().clone()))
    trainer.order.copy_(torch.arange(360))
    pruner.loss = lambda: None
    trainer.forward_backward()
    assert torch.equal(model.fc1.weight, before)
    assert not seen[0][0, :, 300:].any()
    assert torch.equal(seen[0][0, :, :300], before[0, :, :300])
    assert not model.fc1.weight.grad[0, :, 300:].any()
    assert model.fc1.weight.grad[0, :, :300].any()
    assert pruner.masks()["fc1"].tolist() == (~cut).tolist()


def test_the_authors_recipe_adds_its_penalty_to_the_loss(split):
    recipe = PAPER.change(epochs=3, batch=40, alpha=5.0)
    keep = {"fc1": [300, 784], "fc2": [100, 300], "fc3": [40, 100]}
    trainer, trained = fit(split, recipe, trimmed(keep, recipe))
    trainer.model.zero_grad()
    loss = trainer.pruner.loss()
    loss.backward()
    assert loss.item() > 0
    assert trainer.model.fc1.weight.grad[0].any()
    assert not trainer.model.fc1.weight.grad[1].any()  # all are free
    assert trained.sizes[-1].tolist() == [[300, 100, 40], [784, 300, 100]]
    assert Trimmed(build(MLP, [0], SHORT), {"fc1": [3]}, SHORT, 9).loss() is None


def test_replicas_may_differ_in_strength(no_mnist):
    recipe = SHORT.change(alpha=1.0)
    trial = short_trial(sizes=("90-40-20",) * 2, seeds=(0, 0), recipe=recipe, alphas=(1e-3, 3000.0))
    result = train(trial)
    assert [row["alpha"] for row in rows_of(result, exported=False)] == [1e-3, 3000.0]
    pruner = trials.make_pruner(trial, recipe, build(MLP, [0, 0], recipe), STEPS, 360, trial.alphas)
    before = pruner.layers["fc1"].norms().detach().clone()
    optimizer = torch.optim.SGD(pruner.model.parameters(), lr=0.001)
    pruner.penalty.h_schedule = None
    pruner.attach(optimizer, torch.tensor(0.001))
    optimizer.step()
    now = pruner.layers["fc1"].norms().detach()
    assert int((now[1] == 0).sum()) == 784 - 90
    torch.testing.assert_close(now[0], before[0], rtol=1e-4, atol=1e-6)


def test_magnitude_pruning_cuts_once(split):
    recipe = for_method(SHORT.change(freeze_at=0.5), "magnitude", MLP)
    model = build(MLP, [0], recipe)
    pruner = Trimmed(model, {"fc1": [20], "fc2": [20], "fc3": [20]}, recipe, 20)
    trainer = Trainer(model, split, recipe, pruner)
    trainer.order.copy_(torch.arange(360))
    alive, masks = [], []
    for _ in range(20):
        trainer.clock.zero_()
        trainer.step()
        alive.append(int((pruner.layers["fc2"].norms() > 0).sum()))
        masks.append(pruner.masks()["fc2"])
    jump = alive.index(20)
    assert set(alive[:jump]) == {300}
    assert set(alive[jump:]) == {20}
    assert 8 <= jump <= 11
    assert all(torch.equal(mask, masks[-1]) for mask in masks[jump:])


def test_group_l1_is_the_proximal_step_and_then_frozen():
    recipe = SHORT.change(freeze_at=0.5)
    model = build("LeNet-5", [0, 1], recipe)
    pruner = GroupL1(model, list(layers_of("LeNet-5")), [1.0, 20.0], recipe, steps=2)
    pruner.rate = torch.tensor(0.01)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    pruner.shrink()
    for index, alpha in enumerate((1.0, 20.0)):
        for name, axes in (("conv1", (1, 2, 3)), ("fc1", (0,))):
            old = before[f"{name}.weight"][index]
            norms = (
                old.norm(dim=axes, keepdim=True)
                if len(axes) == 1
                else old.flatten(1).norm(dim=1)[:, None, None, None]
            )
            entries = old.numel() / norms.numel()
            factor = (1 - 0.01 * alpha * entries**0.5 / norms).clamp(min=0)
            torch.testing.assert_close(model.get_submodule(name).weight[index], factor * old)
            if name == "conv1":
                alive = (factor.flatten() > 0).float()
                torch.testing.assert_close(model.conv1.bias[index], before["conv1.bias"][index] * alive)
    sizes = pruner.sizes(pruner.masks())
    assert sizes[0].tolist() == [20, 50, 800, 500]
    assert sizes[1].min() < 20
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)  # as an optimizer would move zeros again
    grown = model.fc1.weight.detach().clone()
    pruner.shrink()
    masks = pruner.masks()
    torch.testing.assert_close(model.fc1.weight, grown * masks["fc1"].float()[:, None, :])
    assert torch.equal(sizes, pruner.sizes(masks))
    with pytest.raises(ValueError, match="1 strengths for 2 replicas"):
        GroupL1(model, ["fc1"], [1.0], recipe, 2)


def test_gates_close_when_they_are_dear(split):
    sizes = {}
    for price in (0.0, 30.0):
        prices = {"l0_lambda": (price,) * 3, "l0_weight_decay": 0.0}
        recipe = for_method(SHORT.change(learning_rate=0.15, epochs=5, **prices), "l0", MLP)
        model = build(MLP, [0], recipe)
        trainer = Trainer(model, split, recipe, L0(model, NAMES, recipe, 360))
        trained = trainer.fit({"train": split})
        sizes[price] = [int((model.get_submodule(name).gates() > 0).sum()) for name in NAMES]
        assert trained.sizes[-1, 0].tolist() == sizes[price]
    assert all(few < many for few, many in zip(sizes[30.0], sizes[0.0], strict=True)), sizes
    with pytest.raises(ValueError, match="l0_lambda has 4 numbers for 3 layers"):
        L0(trainer.model, NAMES, recipe.change(l0_lambda=(1.0,) * 4), 360)


def test_the_price_of_gates(split):
    recipe = for_method(Recipe(l0_lambda=(1.0, 2.0, 3.0), l0_weight_decay=0.1), "l0", MLP)
    model = build(MLP, [0, 1], recipe)
    by_hand = 0.0
    for name, price in zip(NAMES, (1.0, 2.0, 3.0), strict=True):
        layer = model.get_submodule(name)
        chance = torch.sigmoid(layer.gate_logits - 2 / 3 * np.log(0.1 / 1.1))
        squares = layer.weight.square().sum(1)
        by_hand += (chance * (price * layer.weight.shape[1] / 360 + 0.05 * squares)).sum()
    torch.testing.assert_close(L0(model, NAMES, recipe, 360).loss(), by_hand)
    free = L0(model, NAMES, recipe.change(l0_weight_decay=0.0), 360)
    dearer = L0(model, NAMES, recipe.change(l0_weight_decay=0.0), 360, (3.0, 3.0))
    torch.testing.assert_close(dearer.loss(), 3.0 * free.loss())
    with pytest.raises(ValueError, match="3 factors for 2 replicas"):
        L0(model, NAMES, recipe, 360, (1.0, 2.0, 3.0))


def test_scores_of_activity_and_of_gradients(split):
    for criterion in ("activity", "taylor"):
        recipe = SHORT.change(criterion=criterion)
        model = build(MLP, [0, 1], recipe)
        pruner = Trimmed(model, {"fc1": [90, 90], "fc2": [40, 50]}, recipe, STEPS)
        trainer = Trainer(model, split, recipe, pruner)
        trainer.order.copy_(torch.arange(360))
        seen = []
        model.fc1.register_forward_pre_hook(lambda module, args, seen=seen: seen.append(args[0]))
        weight = model.fc1.weight.detach().clone()
        trainer.forward_backward()
        gradient = model.fc1.weight.grad.clone()
        trainer.optimizer.step()
        if criterion == "activity":
            expected = 0.99 + 0.01 * seen[0].square().mean(0).expand(2, -1)
        else:
            expected = 0.01 * (weight * gradient).sum(1).square()
        layer = pruner.penalty.layers["fc1"]
        torch.testing.assert_close(layer.score.value, expected)
        scale = model.fc1.weight.norm(dim=1) if criterion == "activity" else 1.0
        torch.testing.assert_close(layer.importance(), expected.sqrt() * scale)
        assert pruner.masks()["fc1"].sum(-1).tolist() == [90, 90]


# -- trials -----------------------------------------------------------------------------------------------


def short_trial(**changes):
    trial = Trial(MLP, "trimmed", ("90-40-20", "50-30-10"), (0, 1), SHORT)
    return dataclasses.replace(trial, **changes)


def test_a_trial_is_repeatable_and_leaves_the_generator_alone(no_mnist):
    trial = short_trial(recipe=SHORT.change(form="bayes", input_dropout=0.1))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = rows_of(train(trial), exported=False)
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(99)
    second = rows_of(train(trial), exported=False)
    for one, two in zip(first, second, strict=True):
        assert one | dict.fromkeys(("seconds", "step_ms")) == two | dict.fromkeys(("seconds", "step_ms"))


def test_rows(no_mnist):
    result = train(short_trial(validation=True))
    rows = rows_of(result)
    assert [row["reached"] for row in rows] == ["90-40-20", "50-30-10"]
    assert all(row["exact"] for row in rows)
    for index, row in enumerate(rows):
        curve = 100 * result.trained.errors["test"][:, index]
        assert row["curve"] == pytest.approx(curve.tolist(), abs=1e-4)
        assert (row["error"], row["lowest"]) == pytest.approx((float(curve[-1]), float(curve.min())))
        assert row["validation_error"] == pytest.approx(
            100 * float(result.trained.errors["validation"][-1, index])
        )
        assert row["export_difference"] < 1e-5
    assert rows[0]["macs"] == 90 * 40 + 40 * 20 + 200
    assert rows[0]["parameters"] == rows[0]["macs"] + 40 + 20 + 10
    assert rows_of(train(short_trial()), exported=False)[0]["validation_error"] is None


def test_the_lowest_error_is_of_networks_no_larger_than_the_last(no_mnist):
    result = train(short_trial(sizes=("90-40-20",), seeds=(0,)))
    result.trained.errors["test"] = torch.tensor([[0.1], [0.3], [0.4]], dtype=torch.float64)
    result.trained.sizes = torch.tensor([[[91, 40, 20]], [[90, 40, 20]], [[90, 40, 20]]])
    row = rows_of(result, exported=False)[0]
    assert (row["lowest"], row["error"]) == pytest.approx((30.0, 40.0))
    dense = train(short_trial(method="dense", sizes=("90-40-20",), seeds=(0,)))
    assert not rows_of(dense, exported=False)[0]["exact"]


def test_the_strength_of_group_l1_is_chosen_by_size(no_mnist, monkeypatch):
    asked = []
    real = trials.train

    def spy(trial, device="cpu"):
        asked.append(trial)
        return real(trial, device)

    monkeypatch.setattr(trials, "train", spy)
    monkeypatch.setitem(trials.ALPHAS, "group l1", (0.001, 5.0))
    trial = short_trial(method="group l1", sizes=("392-150-50", "full"), seeds=(0, 1))
    alphas = trials.choose_alphas(trial, torch.device("cpu"))
    assert 0.001 <= alphas[1] < alphas[0] <= 5.0
    assert len(asked) == 1
    search = asked[0]
    assert (search.validation, search.alphas, search.seeds) == (True, (0.001, 5.0), (1000, 1000))
    assert trials.choose_alphas(trial, torch.device("cpu")) == alphas
    assert len(asked) == 1
    rows = rows_of(real(dataclasses.replace(trial, alphas=(0.001, 5.0))), exported=False)
    assert [row["alpha"] for row in rows] == [0.001, 5.0]
    assert rows[0]["reached"] == "784-300-100" != rows[1]["reached"]


def test_bad_trials():
    with pytest.raises(ValueError, match="1 sizes for 2 seeds"):
        Trial(MLP, "trimmed", ("full",), (0, 1), SHORT)
    with pytest.raises(ValueError, match="no method 'lottery'"):
        trials.make_pruner(short_trial(method="lottery"), SHORT, build(MLP, [0], SHORT), 9, 360, None)
