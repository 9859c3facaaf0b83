"""
Choosing h by cross-validation
==============================

The error on held-out patients falls quickly with the first variables and then hardly at all. The
smallest model within one standard error of the best has fewer variables than the best.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import KFold

from trimreg import TrimmedLassoCV
from trimreg.datasets import diabetes_interactions

X, y, names = diabetes_interactions()
folds = KFold(10, shuffle=True, random_state=0)
best = TrimmedLassoCV(hs=range(21), l2s=0, cv=folds).fit(X, y)
small = TrimmedLassoCV(hs=range(21), l2s=0, cv=folds, rule="1se").fit(X, y)

mean = best.mse_path_.mean(axis=-1).ravel()
error = best.mse_path_.std(axis=-1, ddof=1).ravel() / np.sqrt(10)
fig, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.errorbar(range(21), mean, error, fmt="o-", color="#0072b2", ecolor="0.7")
ax.axvline(best.h_, color="#d55e00", label=f"smallest error: h = {best.h_}")
ax.axvline(small.h_, color="#009e73", ls="--", label=f'rule="1se": h = {small.h_}')
ax.set(xlabel="h, variables in the model", ylabel="mean squared error, 10 folds")
ax.legend()
print("chosen:", [names[j] for j in small.support_])
