"""
A thousand small problems at once
=================================

A bootstrap is a thousand fits of the same size. ``solve_batch`` runs the paper's Algorithm 1 on all
of them as one array.
"""

import matplotlib.pyplot as plt
import numpy as np

from trimreg import solve_batch
from trimreg.datasets import make_ar1

data = make_ar1(n_samples=100, n_features=12, n_nonzero=3, rho=0.3, snr=2, random_state=4)
X, y = data.X - data.X.mean(0), data.y - data.y.mean()
counts = np.random.default_rng(0).multinomial(100, np.full(100, 0.01), size=1000)
draws = solve_batch(X, y, h=3, alpha=0.3, sample_weight=counts).coef

fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.boxplot(draws, flierprops={"marker": ".", "ms": 2}, medianprops={"color": "#0072b2"})
ax.plot(np.arange(1, 13), data.coef, "_", color="#d55e00", ms=14, label="truth")
ax.set_xticks(np.arange(1, 13), [str(j) for j in range(12)])
ax.set(xlabel="feature", ylabel="coefficients of 1000 samples")
ax.legend()
print("share of samples that select each feature:", (draws != 0).mean(0).round(2).tolist())
