"""Gaussian columns with correlation rho between neighbors, unit true coefficients, noise of a given ratio."""

import numpy as np
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "simulated"
    parameters = {
        "n, p": [(300, 1000), (500, 200), (100, 2000)],
        "k": [10],
        "rho": [0.3, 0.9],
        "snr": [2.0],
        "seed": [0, 1],
    }
    test_parameters = {"n, p": [(50, 20)], "k": [3], "seed": [0]}

    def get_data(self):
        rng = np.random.default_rng(self.seed)
        Z = rng.standard_normal((self.n, self.p))
        X = np.empty_like(Z)
        X[:, 0] = Z[:, 0]
        for j in range(1, self.p):
            X[:, j] = self.rho * X[:, j - 1] + np.sqrt(1 - self.rho**2) * Z[:, j]
        w = np.zeros(self.p)
        w[rng.choice(self.p, self.k, replace=False)] = rng.choice([-1.0, 1.0], self.k)
        signal = X @ w
        y = signal + rng.standard_normal(self.n) * signal.std() / np.sqrt(self.snr)
        return {"X": X - X.mean(axis=0), "y": y - y.mean(), "w_true": w}
