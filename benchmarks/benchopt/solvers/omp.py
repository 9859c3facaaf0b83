from benchopt import BaseSolver
from sklearn.linear_model import orthogonal_mp


class Solver(BaseSolver):
    """Orthogonal matching pursuit."""

    name = "omp"
    sampling_strategy = "run_once"
    requirements = ["pip::scikit-learn"]

    def set_objective(self, X, y, h):
        self.X, self.y, self.h = X, y, h

    def run(self, _):
        self.w = orthogonal_mp(self.X, self.y, n_nonzero_coefs=self.h)

    def get_result(self):
        return {"w": self.w}
