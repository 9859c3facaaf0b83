"""
A certificate that no better model exists
=========================================

Branch and bound raises a lower bound until it meets the objective of the fit: then no other set of
eight features is better.
"""

import matplotlib.pyplot as plt

from trimreg import TrimmedLasso
from trimreg.datasets import make_ar1
from trimreg.plotting import certificate

data = make_ar1(n_samples=200, n_features=200, n_nonzero=8, rho=0.5, snr=3, random_state=5)
model = TrimmedLasso(h=8, l2=0.02).fit(data.X, data.y)
proof = model.certify(data.X, data.y, time_limit=30)

fig, ax = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
certificate(proof, ax=ax)
print("proved:", proof.proved, "- the fit was already the best:", not proof.improved)
