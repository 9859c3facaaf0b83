"""LeNet-300-100 and LeNet-5-Caffe as ensembles, and one replica as a plain network.

LeNet-5 has rectifiers after its convolutions, as in Louizos, Welling and Kingma (2018), and no padding. The
ensembles pool before they rectify, which is the same function with a quarter of the work.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from .architectures import layers_of
from .ensemble import EnsembleConv2d, EnsembleLinear, over_replicas, replica_generators
from .ensemble_stochastic import EnsembleBayesConv2d, EnsembleBayesLinear, EnsembleL0Conv2d, EnsembleL0Linear
from .recipes import Recipe

_LINEAR = {"plain": EnsembleLinear, "bayes": EnsembleBayesLinear, "l0": EnsembleL0Linear}
_CONV = {"plain": EnsembleConv2d, "bayes": EnsembleBayesConv2d, "l0": EnsembleL0Conv2d}
_VISIBLE_DROPRATE, _HIDDEN_DROPRATE = 0.2, 0.5  # of the initial gates, as in Louizos 2018


class LeNet300(nn.Module):
    """Ensemble of 784-300-100-10 networks; images (batch, 784) to logits (replicas, batch, 10)."""

    def __init__(self, seeds: Sequence[int], recipe: Recipe):
        super().__init__()
        kind, stream = _LINEAR[recipe.form], replica_generators(seeds)
        for name, wide, narrow in (("fc1", 784, 300), ("fc2", 300, 100), ("fc3", 100, 10)):
            options = _options(recipe, visible=name == "fc1")
            self.add_module(name, kind(len(stream), wide, narrow, seeds=stream, **options))

    def forward(self, images: Tensor) -> Tensor:
        hidden = functional.relu(self.fc1(images))
        return self.fc3(functional.relu(self.fc2(hidden)))


class LeNet5(nn.Module):
    """Ensemble of LeNet-5-Caffe networks; images (batch, 1, 28, 28) to logits (replicas, batch, 10)."""

    def __init__(self, seeds: Sequence[int], recipe: Recipe):
        super().__init__()
        conv, dense, stream = _CONV[recipe.form], _LINEAR[recipe.form], replica_generators(seeds)
        options = _options(recipe, visible=False)
        self.conv1 = conv(len(stream), 1, 20, 5, seeds=stream, **options)
        self.conv2 = conv(len(stream), 20, 50, 5, seeds=stream, **options)
        self.fc1 = dense(len(stream), 800, 500, seeds=stream, **options)
        self.fc2 = dense(len(stream), 500, 10, seeds=stream, **options)

    def forward(self, images: Tensor) -> Tensor:
        for conv in (self.conv1, self.conv2):
            images = functional.relu(over_replicas(functional.max_pool2d, conv(images), 2))
        return self.fc2(functional.relu(self.fc1(images.flatten(2))))


def _options(recipe: Recipe, visible: bool) -> dict:
    if recipe.form == "bayes":
        return {"initial_log_alpha": recipe.initial_log_alpha}
    if recipe.form == "l0":
        return {"droprate": _VISIBLE_DROPRATE if visible else _HIDDEN_DROPRATE}
    return {}


NETWORKS: dict[str, type[nn.Module]] = {"LeNet-300-100": LeNet300, "LeNet-5": LeNet5}


def build(
    network: str, seeds: Sequence[int], recipe: Recipe, device: torch.device | str = "cpu"
) -> nn.Module:
    """An ensemble with one replica per seed; equal seeds give equal initial weights.

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.training.models import build
    >>> from trimreg_reproduction.networks.training.recipes import Recipe
    >>> build("LeNet-300-100", [0, 1, 2], Recipe())(torch.zeros(5, 784)).shape
    torch.Size([3, 5, 10])
    """
    layers_of(network)  # refuses an unknown name
    return NETWORKS[network](seeds, recipe).to(device)


def plain_network(model: nn.Module, index: int) -> nn.Sequential:
    """One replica with PyTorch's own layers, on the CPU: posterior means, weights times gates."""

    def one(name):
        layer = getattr(model, name).replica(index)
        return layer.plain() if hasattr(layer, "plain") else layer

    if isinstance(model, LeNet300):
        parts = [("fc1", one("fc1")), ("relu1", nn.ReLU()), ("fc2", one("fc2")), ("relu2", nn.ReLU()),
                 ("fc3", one("fc3"))]  # fmt: skip
    else:
        parts = [("conv1", one("conv1")), ("relu1", nn.ReLU()), ("pool1", nn.MaxPool2d(2)),
                 ("conv2", one("conv2")), ("relu2", nn.ReLU()), ("pool2", nn.MaxPool2d(2)),
                 ("flatten", nn.Flatten()), ("fc1", one("fc1")), ("relu3", nn.ReLU()),
                 ("fc2", one("fc2"))]  # fmt: skip
    return nn.Sequential(OrderedDict(parts)).cpu().eval()
