from benchopt import BaseSolver

from trimreg import TrimmedLasso


class Solver(BaseSolver):
    """The trimmed lasso at its exact alpha."""

    name = "trimreg"
    sampling_strategy = "run_once"
    parameters = {"effort": ["low", "medium", "high"]}
    requirements = ["pip::trimreg"]

    def set_objective(self, X, y, h):
        self.X, self.y = X, y
        self.model = TrimmedLasso(h=h, effort=self.effort, fit_intercept=False, standardize=False)
        TrimmedLasso(h=1).fit(X[:10, :5], y[:10])  # compiles the loops

    def run(self, _):
        self.model.fit(self.X, self.y)

    def get_result(self):
        return {"w": self.model.coef_}
