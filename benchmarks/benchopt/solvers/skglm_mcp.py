import numpy as np
from benchopt import BaseSolver
from skglm.datafits import Quadratic
from skglm.penalties import MCPenalty
from skglm.solvers import AndersonCD


class Solver(BaseSolver):
    """MCP along a path of alphas, the last fit with at most h features, refitted by least squares."""

    name = "skglm MCP"
    sampling_strategy = "run_once"
    requirements = ["pip::skglm"]

    def set_objective(self, X, y, h):
        self.X, self.y, self.h = np.asfortranarray(X), y, h
        self.path(3)  # compiles the loops

    def path(self, length):
        top = np.abs(self.X.T @ self.y).max() / len(self.y)
        solver = AndersonCD(tol=1e-6, fit_intercept=False, warm_start=True)
        w, best, Xw = np.zeros(self.X.shape[1]), np.zeros(self.X.shape[1]), np.zeros(len(self.y))
        for alpha in np.geomspace(top, top / 100, length)[1:]:
            datafit = Quadratic()
            datafit.initialize(self.X, self.y)
            w = solver.solve(self.X, self.y, datafit, MCPenalty(alpha, 3.0), w, Xw)[0]
            Xw = self.X @ w
            if np.count_nonzero(w) > self.h:
                break
            best = w.copy()
        return best

    def run(self, _):
        w = self.path(60)
        support = np.flatnonzero(w)
        self.w = np.zeros(w.size)
        if support.size:
            self.w[support] = np.linalg.lstsq(self.X[:, support], self.y, rcond=None)[0]

    def get_result(self):
        return {"w": self.w}
