from abess.linear import LinearRegression
from benchopt import BaseSolver


class Solver(BaseSolver):
    """Splicing of subsets (Zhu, Wen, Zhu, Zhang and Wang 2020)."""

    name = "abess"
    sampling_strategy = "run_once"
    requirements = ["pip::abess"]

    def set_objective(self, X, y, h):
        self.X, self.y = X, y
        self.model = LinearRegression(support_size=h, fit_intercept=False, thread=1)

    def run(self, _):
        self.model.fit(self.X, self.y)

    def get_result(self):
        return {"w": self.model.coef_}
