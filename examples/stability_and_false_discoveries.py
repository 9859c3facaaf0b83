"""
Stable features, and a bound on false discoveries
=================================================

Left: how often each feature is chosen on halves of the data. Right: knockoffs choose a set in which
the expected share of false discoveries is at most 20 %.
"""

import matplotlib.pyplot as plt
import numpy as np

from trimreg import StabilitySelection, TrimmedLasso
from trimreg.datasets import make_ar1
from trimreg.inference import Knockoffs

data = make_ar1(n_samples=300, n_features=80, n_nonzero=12, rho=0.4, snr=3, random_state=2)
true = data.coef != 0
stable = StabilitySelection(TrimmedLasso(), hs=[12], n_pairs=25, random_state=0).fit(data.X, data.y)
knock = Knockoffs(q=0.2, random_state=0).fit(data.X, data.y)

fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
colors = np.where(true, "#d55e00", "0.7")
axes[0].bar(range(80), stable.scores_, color=colors)
axes[0].set(xlabel="feature", ylabel="share of halves", title="stability (true features red)")
axes[1].bar(range(80), knock.statistics_[0], color=colors)
axes[1].set(xlabel="feature", ylabel="statistic", title="feature against its knockoff")
print(
    "knockoffs select",
    int(knock.support_.sum()),
    "features,",
    int((~true[knock.support_]).sum()),
    "of them false",
)
