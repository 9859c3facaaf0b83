"""
The structure of a network's inputs
===================================

Each hidden unit of a teacher network reads four inputs. A student sees only inputs and outputs.
With a trimmed penalty on its first layer it finds which inputs the function depends on at all.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from trimreg.nn import TrimmedGroupL1

torch.manual_seed(0)
X = torch.randn(800, 30)
y = X[:, :4].sum(1).relu() + X[:, 10:14].sum(1).relu() - X[:, 20:22].sum(1).relu()
net = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
penalty = TrimmedGroupL1(net, keep={"0": 10}, steps=600)
penalty.attach(optimizer)
for _ in range(600):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(X)[:, 0], y)
    loss.backward()
    optimizer.step()
penalty.finalize_()

fig, ax = plt.subplots(figsize=(7, 3), layout="constrained")
true = {*range(4), *range(10, 14), 20, 21}
ax.bar(
    range(30),
    penalty.layers["0"].norms().detach().numpy(),
    color=["#d55e00" if j in true else "#0072b2" for j in range(30)],
)
ax.set(xlabel="input (true inputs red)", ylabel="norm of its weights")
print("inputs kept:", penalty.kept()["0"].nonzero().flatten().tolist(), f"loss {loss:.3f}")
