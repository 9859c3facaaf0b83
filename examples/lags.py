"""
Time series: which lags matter
==============================

A series depends on its own past at lags 1, 2 and 12, and on another series three steps ago. All 48
candidates are columns; h = 4 finds them, and cross-validation along time finds h.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import TimeSeriesSplit

from trimreg import TrimmedLassoCV

rng = np.random.default_rng(1)
n, depth = 600, 24
u, y = rng.standard_normal(n), np.zeros(n)
for t in range(12, n):
    y[t] = 0.5 * y[t - 1] - 0.3 * y[t - 2] + 0.35 * y[t - 12] + 0.8 * u[t - 3] + 0.5 * rng.standard_normal()
X = np.column_stack([series[depth - lag : n - lag] for series in (y, u) for lag in range(1, depth + 1)])
names = [f"{series} {lag}" for series in ("y", "u") for lag in range(1, depth + 1)]

model = TrimmedLassoCV(hs=range(11), l2s=0, cv=TimeSeriesSplit(5), rule="1se").fit(X, y[depth:])
fig, ax = plt.subplots(figsize=(7, 3), layout="constrained")
lags = np.arange(1, depth + 1)
ax.bar(lags - 0.2, model.coef_[:depth], 0.4, color="#0072b2", label="its own past")
ax.bar(lags + 0.2, model.coef_[depth:], 0.4, color="#d55e00", label="the other series")
ax.set(xlabel="lag", ylabel="coefficient")
ax.legend()
print("h =", model.h_, [names[j] for j in model.support_])
