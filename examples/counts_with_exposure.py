"""
Counts with exposure
====================

Claims of insured persons: who was insured for half a year has half the claims. ``exposure`` is the
time at risk, so the model is one of rates.
"""

import matplotlib.pyplot as plt
import numpy as np

from trimreg import TrimmedPoissonRegressor

rng = np.random.default_rng(2)
X = rng.standard_normal((2000, 30))
years = rng.uniform(0.1, 3.0, 2000)
rate = np.exp(-1.0 + 0.8 * X[:, 2] - 0.5 * X[:, 7] + 0.3 * X[:, 11])
claims = rng.poisson(rate * years)

model = TrimmedPoissonRegressor(h=3).fit(X, claims, exposure=years)
without = TrimmedPoissonRegressor(h=3).fit(X, claims)

fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
order = np.argsort(model.predict(X, exposure=np.ones(2000)))
for part in np.array_split(order, 15):
    predicted = model.predict(X[part], exposure=np.ones(part.size)).mean()
    ax.plot(predicted, claims[part].sum() / years[part].sum(), "o", color="#0072b2")
ax.axline((0, 0), slope=1, color="0.7")
ax.set(xscale="log", yscale="log", xlabel="predicted claims per year", ylabel="observed claims per year")
print("selected:", model.support_, "coefficients:", model.coef_[model.support_].round(2))
print(
    "without exposure the rate at X = 0 is",
    np.exp(without.intercept_).round(2),
    "in place of",
    np.exp(-1).round(2),
)
