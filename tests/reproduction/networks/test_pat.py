"""torchao's pruning-aware training as a peer."""

import pytest
import torch
from torch.nn import functional

from trimreg.nn import export
from trimreg_reproduction.networks.training.data import load_splits
from trimreg_reproduction.networks.training.loop import Trainer
from trimreg_reproduction.networks.training.models import build, plain_network
from trimreg_reproduction.networks.training.pat import Pat
from trimreg_reproduction.networks.training.recipes import Recipe
from trimreg_reproduction.networks.training.trial import seeded

MLP = "LeNet-300-100"
RECIPE = Recipe(form="plain", epochs=2, batch=40, decay_from=1.0)
STEPS = 2 * 9


@pytest.fixture(scope="module")
def optimizer_class():
    """torchao's optimizer; it is loud when it is imported."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pat = pytest.importorskip("torchao.prototype.pat")
    return pat.PruneOptimizer


def trained(split, keep, recipe=RECIPE, network=MLP, seeds=(0, 1)):
    with seeded(3, torch.device("cpu")):
        model = build(network, seeds, recipe)
        trainer = Trainer(model, split, recipe, Pat(model, keep, recipe, recipe.epochs * 9))
        return trainer, trainer.fit({"train": split})


def test_replicas_are_pruned_as_torchao_prunes_a_network(no_mnist, optimizer_class):
    split = load_splits("mnist", MLP)["train"]
    keep = {"fc1": [200, 60], "fc2": [50, 40], "fc3": [20, 9]}
    trainer, result = trained(split, keep)
    assert result.sizes[-1].tolist() == [[200, 50, 20], [60, 40, 9]]
    for index in range(2):
        plain = plain_network(build(MLP, (0, 1), RECIPE), index).train()
        groups = [{"params": [plain.fc1.bias, plain.fc2.bias, plain.fc3.bias]}]
        for name, layer in (("fc1", plain.fc1), ("fc2", plain.fc2), ("fc3", plain.fc3)):
            ratio = 1.0 - keep[name][index] / layer.in_features
            groups.append({
                "params": [layer.weight], "group_type": "Dim1Grouper", "prox_type": "MinSparsityConstraint",
                "min_sparsity": ratio, "min_sparsity_schedule": True,
            })  # fmt: skip
        optimizer = optimizer_class(
            torch.optim.Adam(groups, lr=1e-3),
            warmup_steps=round(0.05 * STEPS), healing_start_step=round(0.45 * STEPS),
        )  # fmt: skip
        with seeded(3, torch.device("cpu")):
            for _ in range(2):
                order = torch.randperm(360)
                for batch in range(9):
                    chosen = order[40 * batch : 40 * (batch + 1)]
                    plain.zero_grad()
                    functional.cross_entropy(plain(split.images[chosen]), split.labels[chosen]).backward()
                    optimizer.step()
        for name, parameter in plain.named_parameters():
            mine = dict(trainer.model.named_parameters())[name][index]
            torch.testing.assert_close(mine, parameter, rtol=1e-3, atol=1e-5)


def test_biases_of_cut_channels_live_on_and_can_be_folded(no_mnist, optimizer_class):
    split = load_splits("mnist", "LeNet-5", images=80)["train"]
    keep = {"conv1": [7], "conv2": [9], "fc1": [60], "fc2": [30]}
    recipe = RECIPE.change(batch=20, learning_rate=0.01, epochs=1)
    with seeded(3, torch.device("cpu")):
        model = build("LeNet-5", (0,), recipe)
        trainer = Trainer(model, split, recipe, Pat(model, keep, recipe, 4))
        result = trainer.fit({"train": split})
    cut = model.conv1.weight[0].flatten(1).abs().sum(1) == 0
    assert result.sizes[-1, 0].tolist() == [7, 9, 60, 30]
    assert int(cut.sum()) == 13
    assert (model.conv1.bias[0][cut] != 0).all()
    network = plain_network(model, 0)
    with torch.no_grad():
        small = export(network, None, split.images[:2], repeats=0).model
        torch.testing.assert_close(small(split.images), network(split.images), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model(split.images)[0], network(split.images), rtol=1e-4, atol=1e-5)
    assert small.conv1.out_channels <= 7


def test_before_it_is_pruned_a_network_is_tested_at_the_size_asked_for(no_mnist, optimizer_class):
    split = load_splits("mnist", MLP)["train"]
    recipe = RECIPE.change(shrink_from=0.8, shrink_until=0.9, freeze_at=0.9)
    keep = {"fc1": [100], "fc2": [40], "fc3": [20]}
    _, result = trained(split, keep, recipe, seeds=(0,))
    assert result.sizes[:, 0].tolist() == [[100, 40, 20]] * 2
