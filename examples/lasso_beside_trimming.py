"""
The lasso beside trimming, at equal size
========================================

Both models keep ten variables. The lasso shrinks all of them; the trimmed lasso shrinks none.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import lars_path

from trimreg import TrimmedLasso
from trimreg.datasets import make_ar1

data = make_ar1(n_samples=200, n_features=500, n_nonzero=10, rho=0.5, snr=5, random_state=0)
trimmed = TrimmedLasso(h=10).fit(data.X, data.y)
X, y = data.X - data.X.mean(0), data.y - data.y.mean()
_, _, path = lars_path(X, y, method="lasso", max_iter=60)
lasso = path[:, np.count_nonzero(path, axis=0) == 10][:, -1]

fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
truth = np.flatnonzero(data.coef)
ax.stem(data.coef[truth], linefmt="0.85", markerfmt="_", basefmt=" ", label="truth")
ax.plot(trimmed.coef_[truth], "o", color="#0072b2", label="trimmed, h = 10")
ax.plot(lasso[truth], "s", mfc="none", color="#d55e00", label="lasso, 10 features")
ax.axhline(0, color="0.5", lw=0.8)
ax.set(xlabel="true feature", ylabel="coefficient", xlim=(-0.5, 12.5))
ax.legend(loc="right")
for name, coef in (("trimmed", trimmed.coef_), ("lasso", lasso)):
    print(name, "mean size of the ten coefficients:", np.abs(coef[truth]).mean().round(2))
