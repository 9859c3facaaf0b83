"""
A formula from data: symbolic features
======================================

Many transformed features, and few that matter: which of more than a hundred candidate terms make up
the period of a pendulum? The second term is the correction for large angles.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np

from trimreg import TrimmedLasso

rng = np.random.default_rng(0)
n = 300
length, gravity, angle = rng.uniform(0.2, 2, n), rng.uniform(1.6, 25, n), rng.uniform(0.05, 1.5, n)
period = 2 * np.pi * np.sqrt(length / gravity) * (1 + angle**2 / 16) * np.exp(0.005 * rng.standard_normal(n))
base = {"L": length, "g": gravity, "a": angle}
powers = (-1, -0.5, 0.5, 1, 2)
terms = {f"{name}^{p:g}": value**p for name, value in base.items() for p in powers}
terms |= {f"{s} {t}": terms[s] * terms[t] for s, t in itertools.combinations(list(terms), 2) if s[0] != t[0]}
terms |= {f"{s} a^2": terms[s] * angle**2 for s in list(terms) if "a" not in s}
X, names = np.column_stack(list(terms.values())), list(terms)

model = TrimmedLasso(h=2, fit_intercept=False).fit(X, period)
for j in model.support_:
    print(f"{model.coef_[j]:.3f}  {names[j]}")
fig, ax = plt.subplots(figsize=(4.6, 4), layout="constrained")
ax.axline((0, 0), slope=1, color="0.7")
ax.plot(model.predict(X), period, ".", color="#0072b2")
ax.set(xlabel="the formula", ylabel="measured period", title=f"two of {len(names)} terms")
print("2 pi is", round(2 * np.pi, 3), "and 2 pi / 16 is", round(2 * np.pi / 16, 3))
