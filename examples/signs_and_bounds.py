"""
Signs and bounds that are known
===============================

A mixture is a sum of known spectra with amounts that are not negative and at most 1. ``lower`` and
``upper`` say so, and keep the fit from explaining noise by subtracting.
"""

import matplotlib.pyplot as plt
import numpy as np

from trimreg import TrimmedLasso

rng = np.random.default_rng(1)
waves, centers = np.linspace(0, 1, 120), np.linspace(0.05, 0.95, 40)
library = np.exp(-0.5 * ((waves[:, None] - centers) / 0.05) ** 2)
amounts = np.zeros(40)
amounts[[8, 11, 26, 30]] = 0.9, 0.6, 1.0, 0.4
mixture = library @ amounts + 0.15 * rng.standard_normal(120)

free = TrimmedLasso(h=7, standardize=False, fit_intercept=False).fit(library, mixture)
bounded = TrimmedLasso(h=7, lower=0, upper=1, standardize=False, fit_intercept=False).fit(library, mixture)
fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.bar(range(40), amounts, color="0.85", label="truth")
ax.plot(free.support_, free.coef_[free.support_], "s", mfc="none", color="#d55e00", label="free")
ax.plot(bounded.support_, bounded.coef_[bounded.support_], "o", color="#0072b2", label="between 0 and 1")
ax.axhline(0, color="0.5", lw=0.8)
ax.set(xlabel="substance", ylabel="amount")
ax.legend()
for name, model in (("free", free), ("bounded", bounded)):
    print(name, "error of the amounts:", round(float(np.abs(model.coef_ - amounts).sum()), 2))
