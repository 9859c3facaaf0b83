"""Networks that are written down in one line, for the tests of exports."""

from torch import nn


class Net(nn.Module):
    """Layers by name and a forward given as a function."""

    def __init__(self, forward, **layers):
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.steps = forward

    def forward(self, x):
        return self.steps(self, x)


def physical(small):
    """The sizes that the layers of an exported network have."""
    return {layer.name: layer.physical for layer in small.report.layers}
