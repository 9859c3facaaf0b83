"""
Which heads of attention are needed
===================================

A small transformer reads digits row by row. Each block keeps two of its eight heads, chosen during
training; the exported model has two heads.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.utils import shuffle
from torch import nn

from trimreg.nn import TrimmedGroupL1


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Linear(8, 32), nn.Parameter(0.1 * torch.randn(8, 32))
        self.first, self.second = (nn.MultiheadAttention(32, 8, batch_first=True) for _ in range(2))
        self.out = nn.Linear(32, 10)

    def forward(self, x):
        x = self.embed(x) + self.place
        for attention in (self.first, self.second):
            x = x + attention(x, x, x, need_weights=False)[0]
        return self.out(x.mean(1))


torch.manual_seed(0)
X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
X, y = torch.tensor(X / 16, dtype=torch.float32).reshape(-1, 8, 8), torch.tensor(y)
net = Reader()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
penalty = TrimmedGroupL1(net, keep={"first": 2, "second": 2}, steps=300)
penalty.attach(optimizer)
norms = []
for _ in range(300):
    batch = torch.randint(1400, (64,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(X[batch]), y[batch]).backward()
    optimizer.step()
    norms.append(torch.cat([layer.norms().detach() for layer in penalty.layers.values()]))
penalty.finalize_()

fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharey=True)
for ax, lines, name in zip(
    axes, torch.stack(norms).split(8, dim=1), ("first block", "second block"), strict=True
):
    ax.plot(lines.numpy())
    ax.set(title=name, xlabel="step")
axes[0].set_ylabel("norm of a head")
wrong = (net.eval()(X[1400:]).argmax(1) != y[1400:]).float().mean()
print(
    {name: mask.nonzero().flatten().tolist() for name, mask in penalty.kept().items()},
    f"wrong {100 * wrong:.0f} %",
)
