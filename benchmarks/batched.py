"""Algorithm 1 for 1,000 problems: one after another, and as one batch on a CPU core and on a GPU."""

from __future__ import annotations

import warnings

import numpy as np

from .common import Section, one_thread, timed

COUNT, N, P, K = 1000, 160, 256, 10
ALPHA = 0.15
ASKED = 50


def problems(count, n, p, k, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((count, n, p))
    y = X[:, :, :k].sum(axis=2) + 0.5 * rng.standard_normal((count, n))
    return X, y


def run(quick: bool = False) -> Section:
    one_thread()
    count, n, p, k = (40, 40, 64, 4) if quick else (COUNT, N, P, K)
    section = Section(
        "Many problems at once",
        f"Algorithm 1, least squares: {count:,} problems of (n, p) = ({n}, {p}), independent normal columns, {k} coefficients of 1, noise "
        f"0.5, h={k}, alpha={ALPHA}, tol 1e-6, float64. *coef*: largest difference to `solve`; *steps*: problems with the same number of steps.",
        ["way", "where", "seconds", "ms per problem", "times faster", "coef", "steps"],
    )
    X, y = problems(count, n, p, k)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # convergence is in the table: the number of steps
        alone, (coef, steps) = timed(lambda: one_by_one(X, y, k))
        add(section, '`solve(solver="bcd")`, one after another', "CPU core", alone, alone, count)
        compiled(X[:2], y[:2], k)
        seconds, found = timed(lambda: compiled(X, y, k))
        add(
            section,
            "numba loop over Gram matrices, another stopping rule",
            "CPU core",
            seconds,
            alone,
            count,
            np.abs(found - coef).max(),
        )
        batch(X[:8], y[:8], k)
        ratio = {}
        for name, where, arrays in ways(X, y):
            batch(*(array[:8] for array in arrays), k)
            seconds, result = timed(lambda arrays=arrays: batch(*arrays, k), 1 if where == "CPU core" else 3)
            ratio[name] = alone / seconds
            same = int(np.sum(result.n_iter == steps))
            add(
                section,
                f"`solve_batch`, {name}",
                where,
                seconds,
                alone,
                count,
                np.abs(result.coef - coef).max(),
                same,
            )
    spread = f"steps: {np.median(steps):.0f} in the median, {steps.max()} at most"
    section.remarks.append(
        f"One after another: {spread}. Seconds of a GPU are with X and y there, results back on the host."
    )
    if "CUDA" in ratio:
        got = ratio["CUDA"]
        section.bar(
            f"on a GPU at least {ASKED} times faster than one after another", f"{got:.0f}", got >= ASKED
        )
        section.headline.append([
            f"Algorithm 1, {count:,} problems of ({n}, {p}) at once on a GPU, against one after another", f"{got:.0f} times faster",
        ])  # fmt: skip
    else:
        section.remarks.append("No CUDA device here.")
    return section


def ways(X, y):
    """``(name, where, (X, y))`` of every place there is."""
    yield "NumPy", "CPU core", (X, y)
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
    yield "tensors (by NumPy)", "CPU core", (torch.from_numpy(X), torch.from_numpy(y))
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
        yield "CUDA", name, (torch.from_numpy(X).cuda(), torch.from_numpy(y).cuda())


def one_by_one(X, y, h):
    from trimreg import TrimmedL1, solve

    results = [
        solve(a, b, penalty=TrimmedL1(h), alpha=ALPHA, solver="bcd", record_stationarity=False)
        for a, b in zip(X, y, strict=True)
    ]
    return np.array([one.coef for one in results]), np.array([one.n_iter for one in results])


def compiled(X, y, h):
    from trimreg_reproduction.linear.methods import GramProblem, first_order_path

    problems = (GramProblem.of(a, b) for a, b in zip(X, y, strict=True))
    return np.array([first_order_path(one, "trimmed", [ALPHA], h, 20_000, tol=1e-6)[0] for one in problems])


def batch(X, y, h):
    from trimreg import solve_batch

    return solve_batch(X, y, h=h, alpha=ALPHA)


def add(section, way, where, seconds, alone, count, error=None, same=None):
    section.rows.append([
        way, where, f"{seconds:.2f}", f"{1e3 * seconds / count:.2f}", f"{alone / seconds:.1f}",
        "-" if error is None else f"{error:.0e}", "-" if same is None else f"{same} of {count}",
    ])  # fmt: skip
