"""
Genes and a product: few out of thousands
=========================================

The production of riboflavin by a bacterium, and the expression of 4,088 genes in 71 samples
(Bühlmann, Kalisch and Meier 2014). Where the data cannot be had, a simulation of the same size
takes their place.
"""

import matplotlib.pyplot as plt
import numpy as np

from trimreg import trimmed_path
from trimreg.datasets import load_riboflavin, make_ar1

try:
    data = load_riboflavin()
    X, y, names = data.X, data.y, np.asarray(data.feature_names)
except (FileNotFoundError, OSError):
    data = make_ar1(n_samples=71, n_features=4088, n_nonzero=6, rho=0.8, snr=2, random_state=0)
    X, y, names = data.X, data.y, np.array([f"gene {j}" for j in range(4088)])

path = trimmed_path(X, y, hs=range(9), l2=0.05)
coefs = path.coefs[:, 0]
chosen = np.flatnonzero(np.any(coefs != 0, axis=0))
fig, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
scaled = coefs[:, chosen] * X[:, chosen].std(0)
for line, name in zip(scaled.T, names[chosen], strict=True):
    ax.plot(range(9), line, "o-", ms=3)
    if line[-1] != 0:
        ax.annotate(name, (8, line[-1]), xytext=(4, 0), textcoords="offset points", fontsize=7, va="center")
ax.set(xlabel="h, genes in the model", ylabel="standardized coefficient", xlim=(0, 9.2))
print("the four genes of h = 4:", names[coefs[4] != 0].tolist())
