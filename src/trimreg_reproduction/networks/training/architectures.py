"""Layers, groups, sizes and costs of the paper's two networks. This module does not need torch.

A size such as ``"245-75-25"`` counts as the paper does: input units of dense layers, output channels of
convolutions. LeNet-300-100 has 784-300-100, LeNet-5-Caffe has 20-50-800-500.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: For each network its penalized layers, with their numbers of groups.
LAYERS: dict[str, dict[str, int]] = {
    "LeNet-300-100": {"fc1": 784, "fc2": 300, "fc3": 100},
    "LeNet-5": {"conv1": 20, "conv2": 50, "fc1": 800, "fc2": 500},
}
CLASSES = 10
_KERNEL = 25  # 5 x 5
_MAP1, _MAP2 = 24 * 24, 8 * 8  # positions in the outputs of the two convolutions, which are not padded


def parse_size(network: str, size: str) -> dict[str, int]:
    """The number of groups to keep in each layer.

    Examples
    --------
    >>> from trimreg_reproduction.networks.training.architectures import parse_size
    >>> parse_size("LeNet-300-100", "245-75-25")
    {'fc1': 245, 'fc2': 75, 'fc3': 25}
    """
    layers = layers_of(network)
    if size == "full":
        return dict(layers)
    parts = size.split("-")
    if len(parts) != len(layers) or not all(part.isdigit() for part in parts):
        raise ValueError(f"a size of {network} has {len(layers)} numbers ({'-'.join(layers)}); got {size!r}")
    keep = dict(zip(layers, map(int, parts), strict=True))
    for name, number in keep.items():
        if not 1 <= number <= layers[name]:
            raise ValueError(f"layer {name} of {network} has {layers[name]} groups; cannot keep {number}")
    return keep


def layers_of(network: str) -> dict[str, int]:
    """The penalized layers of a network, with their numbers of groups."""
    if network not in LAYERS:
        raise ValueError(f"no network {network!r}; choose from {', '.join(LAYERS)}")
    return LAYERS[network]


def format_size(numbers: Mapping[str, int] | Sequence[int]) -> str:
    """A size as text, such as ``"245-75-25"``."""
    values = numbers.values() if isinstance(numbers, Mapping) else numbers
    return "-".join(str(int(value)) for value in values)


def macs(network: str, keep: Mapping[str, int]) -> int:
    r"""The multiplications for one image if exactly these groups are left.

    LeNet-300-100 with sizes a-b-c costs :math:`ab + bc + 10c`. LeNet-5 with a-b-c-d costs
    :math:`576 \cdot 25 a + 64 \cdot 25 ab + cd + 10d`. An exported network may cost less, because a channel
    is removed if the next layer uses none of its positions.
    """
    a, b, c, *rest = (keep[name] for name in layers_of(network))
    if network == "LeNet-300-100":
        return a * b + b * c + CLASSES * c
    (d,) = rest
    return _MAP1 * _KERNEL * a + _MAP2 * _KERNEL * a * b + c * d + CLASSES * d
