"""el0ps: ``sum_i log(1 + exp(-y_i x_i'b)) + lambda ||b||_0 + beta ||b||^2``, y of -1 and 1, for several lambdas."""

import json
import sys
import time

import numpy as np
from el0ps.datafit import Logistic
from el0ps.penalty import L2norm
from el0ps.solver import BnbSolver


class Solver(BnbSolver):
    """The solver, which also keeps the lower bound."""

    def package_results(self, problem, results):
        self.bound = results.bound
        return super().package_results(problem, results)


file = np.load(sys.argv[1])
X, y, k, beta = file["X"], file["y"], int(file["k"]), float(file["beta"])
objective, gap = float(file["objective"]), float(file["gap"])
BnbSolver(time_limit=5.0).solve(Logistic(y[:50]), L2norm(beta), X[:50, :10], 1.0)  # compiles
solves = []
for lmbd in file["lambdas"].tolist():
    solver = Solver(
        relative_gap=gap * objective / (objective + k * lmbd), time_limit=float(file["time_limit"])
    )
    start = time.perf_counter()
    found = solver.solve(Logistic(y), L2norm(beta), X, lmbd)
    solves.append({
        "seconds": time.perf_counter() - start, "lambda": lmbd, "lower": float(solver.bound) - k * lmbd,
        "nonzeros": int(np.count_nonzero(found.x)), "nodes": int(found.iter_count),
    })  # fmt: skip
print(json.dumps({"solves": solves}))
