"""l0bnb: ``||y - Xb||^2 / 2 + lambda0 ||b||_0 + lambda2 ||b||^2`` with ``|b_j| <= M``.

First its path, as its README calls it; then single problems: that of the path's last size again, one whose lambda0 is
half as large, and this one with the M that no better fit can exceed.
"""

import contextlib
import json
import sys
import time

import numpy as np
from l0bnb import BNBTree, fit_path

file = np.load(sys.argv[1])
X, y, k, lambda2 = file["X"], file["y"], int(file["k"]), float(file["lambda2"])
objective = float(file["objective"])  # of the best fit of size k: it sets the tolerance and the safe M
limit, gap = float(file["time_limit"]), float(file["gap"])


def single(lambda0, M):
    tree = BNBTree(X, y)
    start = time.perf_counter()
    found = tree.solve(
        lambda0, lambda2, M, gap_tol=gap * objective / (objective + k * lambda0), time_limit=limit
    )
    seconds = time.perf_counter() - start
    done = tree.bfs_queue.qsize() == 0 and tree.dfs_queue.qsize() == 0
    left = 0.0 if done else found.gap * abs(found.cost)
    support = np.flatnonzero(found.beta)
    return {
        "seconds": seconds, "lambda0": lambda0, "M": M, "lower": float(found.cost - left) - k * lambda0,
        "nonzeros": len(support), "nodes": tree.number_of_nodes,
    }  # fmt: skip


with contextlib.redirect_stdout(sys.stderr):
    settings = {
        "lambda_2": lambda2,
        "max_nonzeros": k,
        "intercept": False,
        "gap_tol": 1e-4,
        "time_limit": limit,
    }
    fit_path(X[:100, :20], y[:100], **(settings | {"max_nonzeros": 2}))  # compiles
    start = time.perf_counter()
    path = fit_path(X, y, **settings)
    seconds = time.perf_counter() - start
    last, safe = path[-1], float(np.sqrt(objective / lambda2))
    choices = ((last["lambda_0"], last["M"]), (last["lambda_0"] / 2, last["M"]), (last["lambda_0"] / 2, safe))
    solves = [single(float(lambda0), float(M)) for lambda0, M in choices]
sizes = [int(np.count_nonzero(one["B"])) for one in path]
print(json.dumps({"path": seconds, "sizes": sizes, "solves": solves}))
