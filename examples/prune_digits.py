"""
Pruning a network to an exact size
==================================

A network for handwritten digits is trained to 32 of 64 pixels, 30 of 100 and 15 of 50 units, and
exported as a smaller dense network with the same outputs. The picture shows which pixels stay.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from sklearn.utils import shuffle
from torch import nn

from trimreg.nn import TrimmedGroupL1, export

torch.manual_seed(0)
X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
X, y = torch.tensor(X / 16, dtype=torch.float32), torch.tensor(y)
net = nn.Sequential(nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
penalty = TrimmedGroupL1(net, keep={"0": 32, "2": 30, "4": 15}, steps=600)
penalty.attach(optimizer)
for _ in range(600):
    batch = torch.randint(1400, (64,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(X[batch]), y[batch]).backward()
    optimizer.step()
penalty.finalize_()
small = export(net, penalty, X[1400:], repeats=0)

fig, axes = plt.subplots(1, 2, figsize=(6, 3), layout="constrained")
axes[0].imshow(X[:1400].mean(0).reshape(8, 8).numpy(), cmap="Greys")
axes[0].set_title("mean digit")
axes[1].imshow(penalty.kept()["0"].reshape(8, 8).numpy(), cmap="Blues")
axes[1].set_title("32 pixels that stay")
wrong = (small.model(X[1400:]).argmax(1) != y[1400:]).float().mean()
print("size", small.report.size, "parameters", small.report.parameters, f"wrong {100 * wrong:.0f} %")
