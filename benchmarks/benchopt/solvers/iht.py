import numpy as np
from benchopt import BaseSolver


class Solver(BaseSolver):
    """Iterative hard thresholding with step 1/L (Blumensath and Davies 2009), refitted on its support."""

    name = "iht"
    sampling_strategy = "iteration"

    def set_objective(self, X, y, h):
        self.X, self.y, self.h = X, y, h

    def run(self, n_iter):
        step = 1.0 / np.linalg.norm(self.X, 2) ** 2
        w = np.zeros(self.X.shape[1])
        for _ in range(n_iter):
            w += step * self.X.T @ (self.y - self.X @ w)
            w[np.argpartition(-np.abs(w), self.h)[self.h :]] = 0.0
        support = np.flatnonzero(w)
        if support.size:
            w[support] = np.linalg.lstsq(self.X[:, support], self.y, rcond=None)[0]
        self.w = w

    def get_result(self):
        return {"w": self.w}
