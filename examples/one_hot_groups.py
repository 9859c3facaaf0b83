"""
Groups: the columns of one category stay together
=================================================

A category becomes several columns. With ``groups`` they enter together, and h counts variables, not
columns.
"""

import matplotlib.pyplot as plt
import numpy as np

from trimreg import TrimmedLasso

rng = np.random.default_rng(0)
n, levels, variables = 400, 4, 12
categories = rng.integers(0, levels, (n, variables))
X = np.concatenate([np.eye(levels)[categories[:, v]][:, 1:] for v in range(variables)], axis=1)
groups = np.repeat(np.arange(variables), levels - 1)
effects = np.zeros((variables, levels))
effects[[1, 4, 9]] = [[0, 1, 2, 3], [0, 2, -2, 0], [0, -1, -1, 1.5]]
y = effects[np.arange(variables), categories].sum(axis=1) + rng.standard_normal(n)

grouped = TrimmedLasso(h=3, groups=groups).fit(X, y)
single = TrimmedLasso(h=9).fit(X, y)

fig, axes = plt.subplots(2, 1, figsize=(7, 4), layout="constrained", sharex=True)
for ax, model, title in zip(axes, (grouped, single), ("h = 3 groups", "h = 9 columns"), strict=True):
    ax.bar(range(X.shape[1]), model.coef_, color=["#d55e00" if g in (1, 4, 9) else "#0072b2" for g in groups])
    ax.set(title=title, ylabel="coefficient")
axes[1].set_xticks(np.arange(variables) * 3 + 1, [f"v{v}" for v in range(variables)])
print("variables by groups:", sorted(set(groups[grouped.coef_ != 0].tolist())))
print("variables by columns:", sorted(set(groups[single.coef_ != 0].tolist())))
