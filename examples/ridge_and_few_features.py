"""
Ten features, as good as they can be
====================================

With few samples an unshrunk fit of many features predicts badly. A small ridge term, chosen by
cross-validation, keeps the number of features and repairs the prediction.
"""

import matplotlib.pyplot as plt
import numpy as np

from trimreg import TrimmedLasso, TrimmedLassoCV
from trimreg.datasets import make_ar1

sizes = [2, 5, 10, 20, 30]
scores = {"l2 = 0": [], 'l2s="auto"': []}
for seed in range(2):
    data = make_ar1(n_samples=560, n_features=150, n_nonzero=40, rho=0.9, snr=1, random_state=seed)
    X, y, X_new, y_new = data.X[:60], data.y[:60], data.X[60:], data.y[60:]
    scores["l2 = 0"].append([TrimmedLasso(h=h).fit(X, y).score(X_new, y_new) for h in sizes])
    auto = [TrimmedLassoCV(hs=[h], l2s="auto", cv=5).fit(X, y).score(X_new, y_new) for h in sizes]
    scores['l2s="auto"'].append(auto)

fig, ax = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for (name, values), color in zip(scores.items(), ("0.6", "#0072b2"), strict=True):
    ax.plot(sizes, np.mean(values, axis=0), "o-", color=color, label=name)
ax.set(xlabel="h, features kept", ylabel="R² on new samples", ylim=(-0.5, None))
ax.legend()
print({name: np.mean(values, axis=0).round(2).tolist() for name, values in scores.items()})
