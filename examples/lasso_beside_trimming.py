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
ax.plot(data.coef[truth], data.coef[truth], color="0.7", zorder=0)
ax.plot(data.coef[truth], trimmed.coef_[truth], "o", label="trimmed, h = 10")
ax.plot(data.coef[truth], lasso[truth], "s", mfc="none", label="lasso, 10 features")
ax.set(xlabel="true coefficient", ylabel="estimate")
ax.legend()
print(
    "true features found: trimmed",
    np.count_nonzero(trimmed.coef_[truth]),
    "lasso",
    np.count_nonzero(lasso[truth]),
)
