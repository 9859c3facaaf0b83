"""Half of every convolution of a residual network: what is left, and how fast it is, against torch-pruning.

    python -m benchmarks channels [--quick]

needs PyTorch, and torch-pruning for its row.
"""

from __future__ import annotations

import copy

from .networks import one_thread, resnet18, where
from .section import Section

BATCHES = (1, 8)
MOST_TIME = 0.9  # of the dense network's


def resnet(width: int):
    """A ResNet for images of 32 x 32: three stages of two blocks, as in He et al. (2016) for CIFAR."""
    from torch import nn

    layers = list(resnet18().children())
    block = type(layers[3])
    sizes = [(width, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2)]
    enter = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    blocks = [one for a, b, stride in sizes for one in (block(a, b, stride), block(b, b, 1))]
    return nn.Sequential(*enter, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))


def trained(model, x, steps: int, penalty=None):
    """The model after some steps on random data, with a penalty or without."""
    import torch
    from torch.nn import functional

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if penalty is not None:
        penalty.attach(optimizer)
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), torch.randint(10, (len(x),))).backward()
        optimizer.step()
    if penalty is not None:
        penalty.finalize_()
    return model.eval()


def convolutions(model) -> dict:
    """The number of channels of every convolution, by name."""
    from torch import nn

    return {name: layer.out_channels for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d)}


def pruned(kind: str, model, x, steps: int):
    """A network with half of the channels of every convolution, by one of three ways."""
    from trimreg.nn import Ramp, TrimmedGroupL1, export

    if kind == "torch-pruning, one call":
        import torch_pruning

        small = copy.deepcopy(trained(model, x, steps))
        torch_pruning.pruner.MagnitudePruner(
            small,
            x[:2],
            torch_pruning.importance.MagnitudeImportance(),
            pruning_ratio=0.5,
            ignored_layers=[small[-1]],
        ).step()
        return small
    keep = {name: channels // 2 for name, channels in convolutions(model).items()}
    example = {"example_input": x[:2]} if kind == "trimreg" else {}
    penalty = TrimmedGroupL1(model, keep, h_schedule=Ramp(0, max(steps // 2, 1)), **example)
    trained(model, x, steps, penalty)
    return export(model, penalty, x, repeats=0).model


WAYS = ("trimreg", "trimreg, layer by layer", "torch-pruning, one call")


def run(quick: bool = False) -> Section:
    import torch

    from trimreg.nn.structure.cost import latency, macs, parameters

    one_thread()
    networks = {"ResNet, width 32": lambda: resnet(16 if quick else 32), "ResNet-18": resnet18}
    steps, repeats = (2, 3) if quick else (10, 30)
    section = Section(
        "Networks: half of every convolution",
        f"Each convolution keeps half of its channels, after {steps} steps of training on random images of 32 x 32; {where()}, one thread. *trimreg*: "
        "`TrimmedGroupL1(net, keep, example_input=x)` and `export`; *layer by layer*: the same without `example_input`, so that the layers of a sum choose different channels. "
        "*exact*: whether every convolution has half of its channels. The time is that of a forward pass against the dense network's, medians of "
        f"{repeats} in turn, for batches of {' and '.join(map(str, BATCHES))}.",
        ["network", "way", "parameters", "MACs per image", "exact", *(f"time, batch {batch}" for batch in BATCHES)],
    )  # fmt: skip
    for name, make in list(networks.items())[: 1 if quick else None]:
        torch.manual_seed(0)
        dense, x = make(), torch.randn(8, 3, 32, 32)
        half = {layer: channels // 2 for layer, channels in convolutions(dense).items()}
        small = {kind: pruned(kind, copy.deepcopy(dense), x, steps) for kind in WAYS}
        dense.eval()
        times = {}
        for batch in BATCHES:
            seconds = latency([dense, *small.values()], (torch.randn(batch, 3, 32, 32),), repeats)
            times[batch] = [each / seconds[0] for each in seconds]
        for place, (kind, model) in enumerate({"dense": dense, **small}.items()):
            found = convolutions(model)
            exact = all(found[layer] == size for layer, size in half.items())
            section.rows.append([
                name, kind, f"{parameters(model):,}", f"{macs(model, (x[:1],)):,}",
                "" if kind == "dense" else "yes" if exact else "no",
                *(f"{times[batch][place]:.2f}" for batch in BATCHES),
            ])  # fmt: skip
            if kind == "trimreg":
                slowest = max(times[batch][place] for batch in BATCHES)
                section.bar(
                    f"{name}: every convolution has half of its channels", "yes" if exact else "no", exact
                )
                section.bar(
                    f"{name}: at most {MOST_TIME} of the dense network's time",
                    f"{slowest:.2f}",
                    slowest <= MOST_TIME,
                )
                section.headline.append([
                    f"half of every convolution of {name}: parameters dense, by trimreg, by torch-pruning",
                    ", ".join(f"{parameters(one):,}" for one in (dense, model, small[WAYS[2]])),
                ])  # fmt: skip
    return section
