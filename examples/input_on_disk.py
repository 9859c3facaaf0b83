"""
Data on disk
============

X lies in a file and is never loaded whole. The fit is the same, and what it costs is counted in
passes over the file.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from trimreg import OnDisk, TrimmedLasso
from trimreg.datasets import make_ar1

data = make_ar1(n_samples=20_000, n_features=200, n_nonzero=10, rho=0.5, snr=1, random_state=0)
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "X.npy"
    np.save(file, data.X.astype(np.float32))
    on_disk = TrimmedLasso(h=10).fit(OnDisk(str(file)), data.y)
in_memory = TrimmedLasso(h=10).fit(data.X.astype(np.float32), data.y)

fig, ax = plt.subplots(figsize=(4.5, 4), layout="constrained")
ax.axline((0, 0), slope=1, color="0.7")
ax.plot(in_memory.coef_, on_disk.coef_, "o", color="#0072b2")
ax.set(xlabel="coefficients, X in memory", ylabel="coefficients, X on disk")
print("largest difference below 1e-5:", np.abs(on_disk.coef_ - in_memory.coef_).max() < 1e-5)
