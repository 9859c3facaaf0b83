"""
A loss of your own: peaks in a spectrum of counts
=================================================

``minimize`` takes any function with its gradient. Photons are counted in channels; the mean is a
background and a few peaks, which only add. Which peaks are there? The loss is the Poisson
likelihood with an identity link, which is in no list of losses, and amplitudes have the lower bound
0.
"""

import matplotlib.pyplot as plt
import numpy as np

from trimreg import minimize

rng = np.random.default_rng(0)
channels, centers = np.arange(300), np.arange(6, 300, 6)
B = np.exp(-0.5 * ((channels[:, None] - centers) / 4.0) ** 2)
true = np.zeros(centers.size)
true[[7, 9, 24, 38]] = 40.0, 25.0, 60.0, 15.0
counts = rng.poisson(5.0 + B @ true)


def loss(theta):
    """The negative log likelihood per channel, and its gradient."""
    mean = 5.0 + B @ theta
    return np.mean(mean - counts * np.log(mean)), B.T @ (1 - counts / mean) / channels.size


found = minimize(loss, centers.size, h=4, lower=0.0)
fig, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
ax.step(channels, counts, color="0.75", where="mid", label="counts")
ax.plot(channels, 5.0 + B @ found.coef, color="#0072b2", label="four peaks")
ax.plot(centers[true > 0], 5.0 + true[true > 0], "v", color="#d55e00", label="truth")
ax.set(xlabel="channel", ylabel="counts")
ax.legend()
print("peaks found at:", centers[found.support], "true:", centers[true > 0])
