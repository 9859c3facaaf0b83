"""Tables beside l0bnb, el0ps and SCIP, each in its own environment and on the same problems, one after the other."""

from __future__ import annotations

import numpy as np

from .peers import solved_by
from .problems import equal_coefficients, ours, two_classes

TOLERANCE = 1e-3
HEADER = ("problem", "program", "seconds", "nonzeros", "gap left", "nodes")


def table(text: str, rows: list[tuple], header: tuple = HEADER) -> str:
    """A paragraph and a Markdown table."""
    lines = [text, "", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def _row(problem: str, program: str, k: int, upper: float, found: dict) -> tuple:
    """One row; the gap is relative to the best fit of size k that is known."""
    if "failed" in found:
        return problem, f"{program}: {found['failed']}", "-", "-", "-", "-"
    gap = max(0.0, (upper - found["lower"]) / upper)
    shown = f"{100 * gap:.2g} %" if found["lower"] > 0 else "all"
    return problem, program, f"{found['seconds']:.2g}", found.get("nonzeros", k), shown, found["nodes"]


def l0bnb(quick: bool) -> str:
    """l0bnb on the kind of problem that it was made for."""
    n, p, k = (200, 100, 3) if quick else (1000, 10_000, 10)
    limit, lambda2 = (2.0 if quick else 60.0), 0.01
    X, y = equal_coefficients(n, p, k, 0.0, 10)
    X, y = X / np.linalg.norm(X, axis=0), y / np.linalg.norm(y)
    mine = ours(X, y, k, 2 * lambda2 / n, limit, TOLERANCE)
    upper = n * mine["upper"]
    peer = solved_by("l0bnb", limit, X=X, y=y, k=k, lambda2=lambda2, objective=upper, gap=TOLERANCE, solves=8)
    name = f"{n} x {p}, k = {k}"
    rows = [_row(name, "trimreg, no bound of coefficients", k, upper, mine | {"lower": n * mine["lower"]})]
    if "failed" in peer:
        rows.append(_row(name, "l0bnb", k, upper, peer))
    else:
        sizes = ", ".join(map(str, peer["sizes"]))
        rows.append(
            (name, f"l0bnb, whole path (sizes {sizes})", f"{peer['path']:.2g}", peer["sizes"][-1], "-", "-")
        )
        for one, told in zip(
            peer["solves"], ("the path's last", "half of that", "half, safe M"), strict=True
        ):
            setting = f"l0bnb, lambda0 = {one['lambda0']:.3g} ({told}), M = {one['M']:.2g}"
            rows.append(_row(name, setting, k, upper, one))
    return table(
        f"**l0bnb 1.0.0** on its own kind of problem: independent columns, k equal coefficients, SNR 10, columns and y "
        f"of norm 1, lambda2 = {lambda2}. It minimizes F(b) + lambda0 ||b||_0 with F(b) = ||y - Xb||^2 / 2 + lambda2 ||b||^2 "
        "and |b_j| <= M; trimreg minimizes F with at most k nonzeros (l2 = 2 lambda2 / n) and needs neither lambda0 nor M. A "
        "lower bound L of its problem gives L - k lambda0 for ours. *Gap left* is the distance of this bound from the "
        "best F of size k that is known, relative to that F. Its path chooses lambda0 and M, the latter as 1.2 "
        "times the largest coefficient of the size before; such a proof holds only among fits within M. The last row has the M "
        f"that follows from F: a fit with a coefficient above sqrt(F / lambda2) is never better. {limit:g} s for each problem, "
        f"gap asked for {TOLERANCE:g}, no warm start except within the path. Our time includes the fit and the Gram matrix.",
        rows,
    )


def el0ps(quick: bool) -> str:
    """el0ps for logistic regression."""
    n, p, sizes, limit = (100, 30, (3,), 2.0) if quick else (500, 200, (5, 10), 60.0)
    rows = []
    for k in sizes:
        X, y = two_classes(n, p, k, 0.5)
        for l2 in (0.1, 0.02):
            name = f"{n} x {p}, k = {k}, l2 = {l2}"
            mine = ours(X, y, k, l2, limit, TOLERANCE, "logistic")
            rows.append(_row(name, "trimreg", k, mine["upper"], mine))
            fits = {h: ours(X, y, h, l2, 1.0, TOLERANCE, "logistic")["upper"] for h in (k - 1, k + 1)}
            ends = n * (mine["upper"] - fits[k + 1]), n * (fits[k - 1] - mine["upper"])
            lambdas = np.array([ends[0] ** (1 - t) * ends[1] ** t for t in (0.25, 0.5, 0.75)])
            peer = solved_by(
                "el0ps", limit, X=X, y=2 * y - 1, k=k, beta=n * l2 / 2, objective=n * mine["upper"], gap=TOLERANCE,
                lambdas=lambdas, solves=3,
            )  # fmt: skip
            if "failed" in peer:
                rows.append(_row(name, "el0ps", k, 1.0, peer))
                continue
            best = min(
                peer["solves"],
                key=lambda one: (max(n * mine["upper"] - one["lower"], limit_of(n, mine)), one["seconds"]),
            )
            rows.append(_row(name, f"el0ps, lambda = {best['lambda']:.2g}", k, n * mine["upper"], best))
    return table(
        "**el0ps 0.0.4**, logistic regression without intercept, AR(1) columns with .5, k coefficients of 1. It minimizes "
        "n F(b) + lambda ||b||_0 with F = mean loss + l2/2 ||b||^2; trimreg minimizes F with at most k nonzeros. "
        "Our fits of k - 1, k and k + 1 features give the lambdas for which k nonzeros are best; it runs with three of them "
        "(at 1/4, 1/2 and 3/4 of their range on a logarithmic scale), and the row is its best run. A lower bound L of its "
        "problem gives (L - k lambda) / n for ours, and *gap left* is relative to F. It is told lambda; a user would have to "
        f"search for it. {limit:g} s, gap asked for {TOLERANCE:g} of F on both sides, compiling not counted.",
        rows,
    )


def limit_of(n: int, mine: dict) -> float:
    """The absolute gap at which a problem counts as proved."""
    return n * mine["upper"] * TOLERANCE * 1.01


def scip(quick: bool) -> str:
    """SCIP, a general solver, on the problems of okridge's table and a small one."""
    sizes = (
        ((60, 15, 2, 0.5, 5),)
        if quick
        else ((200, 60, 4, 0.5, 5), (500, 200, 10, 0.7, 1), (1000, 500, 10, 0.5, 5))
    )
    limit, rows = (2.0 if quick else 60.0), []
    for n, p, k, rho, snr in sizes:
        X, y = equal_coefficients(n, p, k, rho, snr)
        name, l2 = f"{n} x {p}, {k}, {rho}, {snr}", 0.1 / n
        mine = ours(X, y, k, l2, limit, TOLERANCE)
        peer = solved_by("scip", limit, X=X, y=y, k=k, l2=l2, gap=TOLERANCE)
        for program, found in (("trimreg", mine), ("SCIP", peer)):
            above = "-" if "failed" in found else f"{100 * (found['upper'] / mine['upper'] - 1):.2g} %"
            problem, told, seconds, _, gap, nodes = _row(name, program, k, mine["upper"], found)
            rows.append((problem, told, seconds, above, gap, nodes))
    return table(
        "**SCIP** (pyscipopt 6.3.0), for scale: the problems of the first table (n x p, k, rho, SNR) and a smaller one as "
        "mixed-integer programs with perspective cones b_j^2 <= s_j z_j and the Cholesky factor of X'X/n. Both sides minimize the "
        "same objective. *Its fit*: how far the objective of its best fit is above that of ours. SCIP's feasibility "
        f"tolerance is 1e-6, so its figures are right to some .02 % only. {limit:g} s, gap asked for {TOLERANCE:g}, building the model counted.",
        rows, ("problem", "program", "seconds", "its fit", "gap left", "nodes"),
    )  # fmt: skip
