"""
Survival times: which measurements tell the risk
================================================

A Cox model with at most three features out of fifty, and the survival curves that it predicts for a
low, a middle and a high risk.
"""

import matplotlib.pyplot as plt
import numpy as np

from trimreg import TrimmedCoxRegressor

rng = np.random.default_rng(0)
n = 400
X = rng.standard_normal((n, 50))
risk = 0.9 * X[:, 3] - 0.7 * X[:, 17] + 0.5 * X[:, 31]
times, censored = rng.exponential(np.exp(-risk)), rng.exponential(2.0, n)
y = np.column_stack([np.minimum(times, censored), times <= censored])

model = TrimmedCoxRegressor(h=3).fit(X, y)
grid = np.linspace(0, 3, 100)
order = np.argsort(model.predict(X))
who = order[[n // 20, n // 2, -n // 20]]
curves = model.predict_survival_function(X[who], times=grid)

fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for curve, color, name in zip(
    curves, ("#009e73", "#0072b2", "#d55e00"), ("low", "middle", "high"), strict=True
):
    ax.step(grid, curve, color=color, where="post", label=f"{name} risk")
ax.set(xlabel="time", ylabel="probability of survival", ylim=(0, 1))
ax.legend()
print("selected:", model.support_.tolist(), "concordance:", round(model.score(X, y), 2))
