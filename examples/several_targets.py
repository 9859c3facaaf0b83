"""
Several targets, the same features
==================================

Twenty sensors are to be predicted from few of two hundred. Chosen together, the few right ones are
found from little data; chosen one by one, each target takes its own.
"""

import matplotlib.pyplot as plt
import numpy as np

from trimreg import MultiTaskTrimmedLasso, TrimmedLasso

rng = np.random.default_rng(0)
X = rng.standard_normal((80, 200))
B = np.zeros((200, 20))
B[[10, 60, 110, 160]] = rng.standard_normal((4, 20))
Y = X @ B + 2.0 * rng.standard_normal((80, 20))

together = MultiTaskTrimmedLasso(h=4).fit(X, Y)
alone = np.array([TrimmedLasso(h=4).fit(X, y).coef_ for y in Y.T])

fig, axes = plt.subplots(2, 1, figsize=(8, 3.6), layout="constrained", sharex=True)
for ax, coef, title in zip(axes, (together.coef_, alone), ("together", "one by one"), strict=True):
    ax.imshow(np.abs(coef) > 0, aspect="auto", cmap="Blues", interpolation="none")
    ax.set(title=title, ylabel="target")
axes[1].set_xlabel("feature")
print(
    "together:",
    together.support_.tolist(),
    "; one by one:",
    np.count_nonzero(np.any(alone, axis=0)),
    "features",
)
