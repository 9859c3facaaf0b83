"""
Governing equations from a trajectory: h terms per equation
===========================================================

Brunton, Proctor and Kutz (2016), "Discovering governing equations from data by sparse
identification of nonlinear dynamical systems", regress derivatives on a library of functions. Here
each equation of the Lorenz system gets exactly the number of terms that one asks for.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp
from sklearn.preprocessing import PolynomialFeatures

from trimreg import TrimmedLasso


def lorenz(t, s):
    x, y, z = s
    return [10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z]


times = np.linspace(0, 10, 2000)
path = solve_ivp(lorenz, (0, 10), [-8, 8, 27], t_eval=times, rtol=1e-9).y.T
noisy = path + 0.02 * np.random.default_rng(0).standard_normal(path.shape)
slopes = np.gradient(noisy, times, axis=0)
library = PolynomialFeatures(3, include_bias=False).fit(noisy)
names = library.get_feature_names_out(["x", "y", "z"])
for name, h, slope in zip("xyz", (2, 3, 2), slopes.T, strict=True):
    model = TrimmedLasso(h=h, fit_intercept=False).fit(library.transform(noisy), slope)
    terms = [f"{model.coef_[j]:+.2f} {names[j].replace(' ', '*')}" for j in model.support_]
    print(f"d{name}/dt =", " ".join(terms))

fig = plt.figure(figsize=(4.5, 4), layout="constrained")
ax = fig.add_subplot(projection="3d")
ax.plot(*noisy.T, lw=0.6, color="#0072b2")
ax.set(xlabel="x", ylabel="y", zlabel="z")
