"""Forward passes of exported networks on the CPU, against the dense network and its multiply-accumulates.

    python -m benchmarks network_latency [--quick]

needs PyTorch, and transformers for the vision transformer.
"""

from __future__ import annotations

import copy

from .networks import one_thread, resnet18, where
from .section import Section

BATCHES = (1, 8, 64)
SHARES = {"a half": 1 / 2, "a quarter": 1 / 4, "an eighth": 1 / 8}


def perceptron():
    """784-1000-1000-10."""
    from torch import nn

    parts = [nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10)]
    return nn.Sequential(*parts), (784,)


def residual():
    return resnet18(), (3, 32, 32)


def vision_transformer():
    """A ViT of transformers for images of 32 x 32 in patches of 4 x 4: six layers of eight heads, with random weights."""
    from torch import nn
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=192, num_hidden_layers=6, num_attention_heads=8, intermediate_size=768,
        image_size=32, patch_size=4, num_labels=10,
    )  # fmt: skip

    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.vit = ViTForImageClassification(config)

        def forward(self, x):
            return self.vit(x).logits

    return Logits(), (3, 32, 32)


NETWORKS = {"ResNet-18": residual, "MLP 784-1000-1000-10": perceptron, "ViT": vision_transformer}


def cut(dense, share, x):
    """The export of an untrained copy: the sizes decide the time of a pass, not the values of the weights."""
    from trimreg.nn import TrimmedGroupL1, export

    model = copy.deepcopy(dense)
    penalty = TrimmedGroupL1(model, share, example_input=x)
    penalty.freeze_()
    return export(model, penalty, x, repeats=0)


def run(quick: bool = False) -> Section:
    import torch

    from trimreg.nn.structure.cost import latency

    one_thread()
    repeats = dict.fromkeys(BATCHES[:1], 3) if quick else {1: 60, 8: 30, 64: 12}
    section = Section(
        "Networks: the time of exported networks",
        f"`TrimmedGroupL1(net, keep=share, example_input=x)`, then `export`, of untrained networks; {where()}, one thread. *ResNet-18* for images of 32 x 32, the share of all "
        "channels; *MLP*, of all hidden units; *ViT* of transformers (64 patches of width 192, six layers), of the heads and hidden units of all layers. The time is that of a forward "
        "pass against the dense network's, medians of passes in turn; a row is met if no time is above 1.",
        ["network", "kept", "parameters", "MACs per sample", "MACs, of the dense", *(f"time, batch {batch}" for batch in repeats)],
    )  # fmt: skip
    for name, make in NETWORKS.items():
        torch.manual_seed(0)
        dense, shape = make()
        dense.eval()
        x = torch.randn(2, *shape)
        small = {kept: cut(dense, share, x) for kept, share in SHARES.items()}
        times = {}
        for batch, turns in repeats.items():
            seconds = latency(
                [dense, *(one.model for one in small.values())], (torch.randn(batch, *shape),), turns
            )
            times[batch] = [each / seconds[0] for each in seconds[1:]]
        for place, (kept, one) in enumerate(small.items()):
            (dense_macs, macs), (_, parameters) = one.report.macs, one.report.parameters
            ratios = [found[place] for found in times.values()]
            section.rows.append([
                name, kept, f"{parameters:,}", f"{macs:,}", f"{macs / dense_macs:.3f}", *(f"{ratio:.2f}" for ratio in ratios),
            ])  # fmt: skip
            asked = f"{name}, {kept}: not slower than the dense network, at batches of {', '.join(map(str, repeats))}"
            section.bar(asked, f"{max(ratios):.2f}", max(ratios) <= 1)
            if kept == "a half":
                section.headline.append([
                    f"half of {name}, exported: the time of a pass against the dense network's, CPU, batches of {', '.join(map(str, repeats))}",
                    ", ".join(f"{ratio:.2f}" for ratio in ratios),
                ])  # fmt: skip
    return section
