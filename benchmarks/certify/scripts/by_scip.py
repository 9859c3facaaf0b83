"""SCIP: best subset with ridge as a mixed-integer program with cones.

``minimize ||Rb - v||^2 / 2 + l2/2 sum_j s_j + rest`` subject to ``b_j^2 <= s_j z_j``, ``sum_j z_j <= k``, z binary,
where ``R'R = X'X/n`` and ``R'v = X'y/n``. The coefficients need no bound of their own; SCIP is given one that holds.
"""

import json
import sys
import time

import numpy as np
from pyscipopt import Model, quicksum

file = np.load(sys.argv[1])
X, y, k, l2 = file["X"], file["y"], int(file["k"]), float(file["l2"])
n, p = X.shape
start = time.perf_counter()
K = X.T @ X / n
R = np.linalg.cholesky(K).T
v = np.linalg.solve(R.T, X.T @ y / n)
rest = 0.5 * (np.mean(y**2) - v @ v)
largest = 2 * np.sqrt(np.mean(y**2) / np.linalg.eigvalsh(K)[0])  # where Rb - v is longer than v, 0 is better
model = Model()
model.hideOutput()
for name, value in {
    "limits/time": float(file["time_limit"]),
    "limits/gap": float(file["gap"]),
    "lp/threads": 1,
}.items():
    model.setParam(name, value)
b = [model.addVar(lb=-largest, ub=largest) for _ in range(p)]
z = [model.addVar(vtype="B") for _ in range(p)]
s = [model.addVar(lb=0) for _ in range(p)]
u = [model.addVar(lb=None) for _ in range(p)]
loss = model.addVar(lb=0)
model.addCons(quicksum(z) <= k)
for j in range(p):
    model.addCons(quicksum(R[j, i] * b[i] for i in range(j, p)) - v[j] == u[j])
    model.addCons(b[j] * b[j] <= s[j] * z[j])
model.addCons(quicksum(one * one for one in u) <= loss)
model.setObjective(0.5 * loss + 0.5 * l2 * quicksum(s) + rest)
model.optimize()
print(json.dumps({
    "seconds": time.perf_counter() - start, "upper": float(model.getPrimalbound()), "lower": float(model.getDualbound()),
    "nodes": int(model.getNTotalNodes()),
}))  # fmt: skip
