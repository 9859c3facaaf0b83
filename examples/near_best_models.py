"""
All models that are nearly as good
==================================

The best subset is one of many. ``near_best`` lists all models of a size whose objective is within a
given share of the best, with proof: what all of them contain is what the data insist on.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from trimreg import near_best

X, y = load_diabetes(return_X_y=True, as_frame=True)
found = near_best(X.to_numpy(), y.to_numpy(), h=5, within=0.02)
members = np.array([np.isin(np.arange(X.shape[1]), support) for support in found.supports])

fig, ax = plt.subplots(figsize=(6.5, 0.25 * len(members) + 1.4), layout="constrained")
ax.imshow(members, cmap="Blues", aspect="auto", vmin=0, vmax=1.4)
ax.set_xticks(range(X.shape[1]), X.columns)
ax.set(ylabel="model, best first", title="five variables, objective within 2 % of the best")
print(len(members), "models; in all of them:", X.columns[found.in_all].tolist())
