"""Networks that are written down in one line, and exports that are compared with the original."""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trimreg.nn import TrimmedGroupL1, export
from trimreg.nn.structure.tracing import relative_difference


class Net(nn.Module):
    """Layers by name and a forward given as a function."""

    def __init__(self, forward, **layers):
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.steps = forward

    def forward(self, x):
        return self.steps(self, x)


class Reader(nn.Module):
    """An embedding, attention and a residual block over tokens."""

    def __init__(self, heads=4, batch_first=True, **options):
        super().__init__()
        self.table = nn.Embedding(11, 12)
        self.attention = nn.MultiheadAttention(12, heads, batch_first=batch_first, **options)
        self.norm = nn.LayerNorm(12)
        self.up, self.down = nn.Linear(12, 24), nn.Linear(24, 12)
        self.head = nn.Linear(12, 3)

    def forward(self, tokens):
        x = self.table(tokens)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        x = x + self.down(F.gelu(self.up(x)))
        return self.head(x[:, 0])


def physical(small):
    """The sizes that the layers of an exported network have."""
    return {layer.name: layer.physical for layer in small.report.layers}


def exported(model, keep, *examples, groups="auto", tolerance=1e-5, **options):
    """Export on the first example, and compare with the finalized original on all of them and on new data."""
    penalty = TrimmedGroupL1(model, keep=keep, groups=groups)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    small = export(model, penalty, examples[0], repeats=0, **options)
    changed = [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
    assert changed == []
    assert not small.model.training
    assert {layer.name: layer.kept for layer in small.report.layers} == penalty.keep
    penalty.finalize_()
    examples = [x if isinstance(x, tuple) else (x,) for x in examples]
    for inputs in (*examples, tuple(_fresh(x) for x in examples[0])):
        with torch.no_grad():
            want = copy.deepcopy(model).eval()(*copy.deepcopy(inputs))
            got = small.model(*copy.deepcopy(inputs))
        assert relative_difference(want, got) <= tolerance
    return small


def _fresh(x: Tensor) -> Tensor:
    """Other data of three samples."""
    if x.is_floating_point():
        return torch.randn(3, *x.shape[1:], dtype=x.dtype)
    return torch.randint(int(x.max()) + 1, (3, *x.shape[1:]))
