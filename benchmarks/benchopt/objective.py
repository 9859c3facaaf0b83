"""At most h nonzero coefficients: how low the residual sum of squares gets, and how soon.

    minimize  1/(2n) ||y - X w||^2   over  w with at most h nonzeros

This file alone defines the metric; a result with more than h nonzeros counts as infinite.
"""

import numpy as np
from benchopt import BaseObjective


class Objective(BaseObjective):
    name = "Best subset of h features"
    min_benchopt_version = "1.6"
    parameters = {"h": [5, 10, 20]}
    sampling_strategy = "run_once"

    def set_data(self, X, y, w_true=None):
        self.X, self.y, self.w_true = X, y, w_true

    def get_one_result(self):
        return {"w": np.zeros(self.X.shape[1])}

    def evaluate_result(self, w):
        support = np.flatnonzero(w)
        residual = self.y - self.X[:, support] @ w[support]
        value = 0.5 * residual @ residual / len(self.y) if support.size <= self.h else np.inf
        found = {"value": value, "nonzeros": int(support.size)}
        if self.w_true is not None:
            found["true features"] = int(np.count_nonzero(self.w_true[support]))
        return found

    def get_objective(self):
        return {"X": self.X, "y": self.y, "h": self.h}
