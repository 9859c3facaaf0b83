"""
Rows on a cluster: a Dask array as X
====================================

A Dask array stands wherever a matrix does. Each block stays with its worker; what travels are sums
of the size of the selected columns. Here the workers are threads of this process.
"""

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np

from trimreg import trimmed_path
from trimreg.datasets import make_ar1

data = make_ar1(n_samples=6000, n_features=100, n_nonzero=8, rho=0.5, snr=1, random_state=0)
X = da.from_array(data.X, chunks=(1500, 100))
path = trimmed_path(X, data.y, hs=range(13))

fig, ax = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
true = data.coef != 0
for j in range(100):
    ax.plot(
        range(13), path.coefs[:, 0, j], color="#d55e00" if true[j] else "0.75", lw=1.5 if true[j] else 0.7
    )
ax.set(xlabel="h", ylabel="coefficient (true features red)")
print("the eight of h = 8 are the true ones:", bool(np.all(true[path.coefs[8, 0] != 0])))
