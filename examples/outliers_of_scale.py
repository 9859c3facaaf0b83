"""
Heavy tails: Huber's loss beside least squares
==============================================

Noise with heavy tails hides weak effects from least squares. Huber's loss, with the scale
estimated, finds them.
"""

import matplotlib.pyplot as plt
import numpy as np

from trimreg import TrimmedHuberRegressor, TrimmedLasso

found = {"least squares": [], "Huber": []}
degrees = [1.5, 2, 3, 5, 10]
for df in degrees:
    hits = np.zeros(2)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((150, 40))
        y = X[:, :5] @ np.full(5, 0.6) + rng.standard_t(df, 150)
        models = TrimmedLasso(h=5).fit(X, y), TrimmedHuberRegressor(h=5).fit(X, y)
        hits += [np.count_nonzero(model.support_ < 5) / 30 for model in models]
    for name, share in zip(found, hits, strict=True):
        found[name].append(share)

fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
for (name, shares), color in zip(found.items(), ("0.6", "#0072b2"), strict=True):
    ax.plot(degrees, shares, "o-", color=color, label=name)
ax.set(xscale="log", xlabel="degrees of freedom of the noise", ylabel="share of true features found")
ax.set_xticks(degrees, [str(d) for d in degrees])
ax.minorticks_off()
ax.legend()
print("at 1.5 degrees of freedom:", {name: round(shares[0], 2) for name, shares in found.items()})
