"""okridge: ``||y - Xb||^2 + lambda2 ||b||^2`` without ``||y||^2``, at most k nonzeros."""

import json
import sys
import time

import numpy as np
from okridge.tree import BNBTree

file = np.load(sys.argv[1])
start = time.perf_counter()
tree = BNBTree(X=file["X"], y=file["y"], lambda2=float(file["lambda2"]))
upper, beta, gap, _, _ = tree.solve(
    k=int(file["k"]), gap_tol=float(file["gap"]), verbose=False, time_limit=float(file["time_limit"])
)
print(json.dumps({"seconds": time.perf_counter() - start, "upper": float(upper), "gap": float(gap)}))
