"""Small networks of the usual kinds, for the tests of coupled channels: each as a model and an example."""

import torch
from torch import nn
from torch.nn import functional as F


def conv(inputs, outputs, size=3, stride=1, groups=1):
    """A convolution with a batch norm."""
    layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """Two convolutions and a sum with the input; the middle may have groups."""

    def __init__(self, inputs, outputs, stride=1, groups=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = conv(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet(width=8, groups=1):
    """Three stages of two blocks, as in ResNets for CIFAR."""
    sizes = [(width, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2)]
    blocks = [
        block
        for a, b, stride in sizes
        for block in (Residual(a, b, stride, groups), Residual(b, b, 1, groups))
    ]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 3)]
    return nn.Sequential(conv(1, width), nn.ReLU(), *blocks, *head), torch.randn(3, 1, 8, 8)


class Dense(nn.Module):
    """DenseNet's block, in which every layer reads all before it, and a transition."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 6, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(6 + 4 * i) for i in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(6 + 4 * i, 4, 3, padding=1) for i in range(3))
        self.last = nn.Conv2d(18, 8, 1)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.first(x)
        for norm, layer in zip(self.norms, self.convs, strict=True):
            x = torch.cat([x, layer(F.relu(norm(x)))], 1)
        return self.head(F.avg_pool2d(self.last(x), 2).mean((2, 3)))


class Inverted(nn.Module):
    """MobileNet's block: expand, convolve channel by channel, weigh the channels, project, add."""

    def __init__(self, width, expand):
        super().__init__()
        self.expand, self.depth = conv(width, expand, 1), conv(expand, expand, 3, groups=expand)
        self.squeeze, self.excite = nn.Conv2d(expand, 4, 1), nn.Conv2d(4, expand, 1)
        self.project = conv(expand, width, 1)

    def forward(self, x):
        y = F.relu6(self.depth(F.relu6(self.expand(x))))
        y = y * torch.sigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        return x + self.project(y)


def mobilenet():
    """A depthwise separable convolution and two inverted residual blocks."""
    separable = [*conv(8, 8, 3, groups=8), nn.ReLU(), *conv(8, 12, 1), nn.ReLU()]
    blocks = [Inverted(12, 24), Inverted(12, 24)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 3)]
    return nn.Sequential(*conv(1, 8), nn.ReLU6(), *separable, *blocks, *head), torch.randn(3, 1, 8, 8)


class UNet(nn.Module):
    """Down, up by a transposed convolution, and a concatenation across."""

    def __init__(self):
        super().__init__()
        self.enter, self.down, self.middle = conv(1, 8), conv(8, 16, 3, 2), conv(16, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.merge, self.leave = conv(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        skip = F.relu(self.enter(x))
        y = F.relu(self.middle(F.relu(self.down(skip))))
        y = torch.cat([skip, F.relu(self.up(y))], dim=1)
        return self.leave(F.relu(self.merge(y)))


class Gates(nn.Module):
    """Channels that are weighed, masked, divided, put together again, and scaled by a learned number."""

    def __init__(self):
        super().__init__()
        self.enter, self.left, self.right = conv(1, 12), conv(6, 4), conv(6, 8)
        self.squeeze, self.excite = nn.Linear(12, 5), nn.Linear(5, 12)
        self.where, self.scale = nn.Conv2d(12, 1, 3, padding=1), nn.Parameter(torch.tensor(0.5))
        self.merge, self.head = conv(12, 12, 1), nn.Linear(12, 3)

    def forward(self, x):
        x = F.relu(self.enter(x))
        b, c, _, _ = x.size()
        x = x * torch.sigmoid(self.excite(F.relu(self.squeeze(x.mean((2, 3)))))).view(b, c, 1, 1)
        x = x * torch.sigmoid(self.where(x))
        a, d = x.chunk(2, dim=1)
        y = torch.cat([F.relu(self.left(a)), F.relu(self.right(d))], 1)
        y = self.scale * F.relu(self.merge(y))
        return self.head(y.mean((2, 3))) + self.head.bias * y[:, :6].mean((1, 2, 3))[:, None]


def vgg():
    """Convolutions and pooling, then linear layers on a flattened image of 2 x 2."""
    layers = [*conv(1, 8), nn.ReLU(), nn.MaxPool2d(2), *conv(8, 12), nn.ReLU(), nn.MaxPool2d(2)]
    head = [nn.Flatten(), nn.Linear(48, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Dropout(), nn.Linear(20, 3)]
    return nn.Sequential(*layers, *head), torch.randn(3, 1, 8, 8)


NETWORKS = {
    "resnet": resnet,
    "resnext": lambda: resnet(8, groups=4),
    "densenet": lambda: (Dense(), torch.randn(3, 1, 8, 8)),
    "mobilenet": mobilenet,
    "unet": lambda: (UNet(), torch.randn(3, 1, 8, 8)),
    "vgg": vgg,
    "gates": lambda: (Gates(), torch.randn(3, 1, 8, 8)),
}
