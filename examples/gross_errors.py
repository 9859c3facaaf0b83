"""
A robust fit: ten samples are wrong
===================================

Some responses are gross errors. ``n_outliers`` leaves out the samples with the largest losses, as
trimming leaves the largest coefficients alone: one idea for columns, and for rows.
"""

import matplotlib.pyplot as plt
import numpy as np

from trimreg import TrimmedLasso
from trimreg.datasets import make_ar1

data = make_ar1(n_samples=120, n_features=60, n_nonzero=5, rho=0.3, snr=10, random_state=3)
y, rng = data.y.copy(), np.random.default_rng(0)
wrong = rng.choice(120, 10, replace=False)
y[wrong] += rng.choice([-1, 1], 10) * 15 * y.std()

plain = TrimmedLasso(h=5).fit(data.X, y)
robust = TrimmedLasso(h=5, n_outliers=10).fit(data.X, y)

fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained", sharey=True)
for ax, model, title in zip(axes, (plain, robust), ("all samples", "n_outliers=10"), strict=True):
    ax.stem(data.coef, linefmt="0.8", markerfmt="none", basefmt=" ")
    ax.plot(data.coef, "_", color="0.4", ms=10, label="truth")
    ax.plot(model.support_, model.coef_[model.support_], "o", color="#0072b2", label="fit")
    ax.set(title=title, xlabel="column")
axes[0].legend()
for name, model in (("all samples", plain), ("without ten", robust)):
    print(name, "true columns found:", np.count_nonzero(data.coef[model.support_]), "of 5")
