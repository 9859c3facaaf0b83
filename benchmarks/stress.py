"""Adverse data: the time of every loss on data that are hard for it, against its time on data that are not."""

from __future__ import annotations

import signal
import time
import warnings
from contextlib import contextmanager

import numpy as np

from .common import Section, one_thread

N, P, H = 200, 400, 5
FACTOR = 20  # times the well-behaved fit
SHARE = {"huber": 0.4}  # of the alpha that zeroes all, for the soft penalty
USUAL = 0.1  # for the other losses; at that share Huber's loss interpolates
VIOLATION = 1e-4  # of a condition, in units of that alpha: the largest that passes for a solution


def run(quick: bool = False, only: tuple[str, ...] = ()) -> Section:
    one_thread()
    n, p = (60, 80) if quick else (N, P)
    section = Section(
        "Adverse data",
        f"n={n}, p={p}, h={H}, estimators with their defaults (ridge term 0), processor time on one thread. Soft: alpha is {USUAL} of the "
        f"alpha that zeroes all ({SHARE['huber']} for Huber's loss). *Ratio*: to the same loss on well-behaved data. *Violation*: square root of the paper's T, recomputed "
        "from the data, in units of that alpha. A fit that takes too long must end early with a warning that says why.",
        ["loss", "alpha", "data", "seconds", "ratio", "violation", "warning"],
    )  # fmt: skip
    worst, wrong, cells = {}, [], 0
    for loss in only or LOSSES:
        for mode in ("soft", "exact"):
            bases: dict = {}
            for name, (X, y, h, share) in adversities(loss, n, p).items():
                if mode == "exact" and share != SHARE.get(loss, USUAL):
                    continue
                unit = largest_alpha(loss, X, y)
                alpha = "exact" if mode == "exact" else share * unit
                easy = name.startswith("well-behaved")
                limit = 60.0 if easy else max(5.0, 2 * FACTOR * bases.get(X.shape, bases[n, p]))
                if easy:
                    fit(loss, X, y, h, alpha, limit)  # compile
                seconds, model, warned = fit(loss, X, y, h, alpha, limit)
                if easy:
                    bases[X.shape] = seconds
                base = bases.get(X.shape, bases[n, p])
                violation = np.inf if model is None else float(np.sqrt(model.stationarity_)) / unit
                cells += 1
                stopped = "steps" in warned  # "stopped after", "not converged after"
                worst[loss, mode, name] = 0.0 if stopped else seconds / base
                if not stopped and not violation <= VIOLATION:
                    wrong.append(f"{loss}, {mode}, {name}")
                section.rows.append([
                    loss, mode, name, f"{seconds:.4f}", f"{seconds / base:.1f}", f"{violation:.0e}", warned,
                ])  # fmt: skip
    slow = {cell: ratio for cell, ratio in worst.items() if ratio > FACTOR}
    got = "; ".join(f"{', '.join(cell)}: {ratio:.0f}" for cell, ratio in slow.items())
    section.bar(
        f"every fit within {FACTOR} times the well-behaved one, or ended early with a warning",
        got or f"at most {max(worst.values()):.1f} in {cells} fits",
        not slow,
    )
    section.bar(
        f"no violation above {VIOLATION:g} without a warning",
        "; ".join(wrong) or f"none in {cells}",
        not wrong,
    )
    section.headline.append([
        f"{cells} fits to adverse data (separable, collinear, scales of 1e8 and 1e-8, h = n), n={n}, p={p}, every loss",
        f"{'within' if not slow else 'not within'} {FACTOR} times the well-behaved fit or ended with a warning",
    ])  # fmt: skip
    return section


# -- the data -----------------------------------------------------------------------------------------------


def adversities(loss: str, n: int, p: int) -> dict:
    """``(X, y, h, share of the largest alpha)`` by the name of what is wrong with them; nothing at first."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    response, share = LOSSES[loss][1], SHARE.get(loss, USUAL)
    y = response(X, np.random.default_rng(1), True)
    doubled = X.copy()
    doubled[:, p // 2 :] = X[:, : p // 2] + 1e-7 * X[:, p // 2 :]
    factors = X[:, :20] @ rng.standard_normal((20, p)) + 1e-6 * X
    data = {
        "well-behaved": (X, y, H, share),
        "separable or without noise": (X, response(X, np.random.default_rng(1), False), H, share),
        "the same, alpha 1e-6": (X, response(X, np.random.default_rng(1), False), H, 1e-6),
        "collinear: pairs": (doubled, response(doubled, np.random.default_rng(1), True), H, share),
        "collinear: 20 factors": (factors, response(factors / 5, np.random.default_rng(1), True), H, share),
        "alpha 0.1": (X, y, H, 0.1),
        "alpha 1e-3": (X, y, H, 1e-3),
        "alpha 1e-6": (X, y, H, 1e-6),
        "X times 1e8": (1e8 * X, y, H, share),
        "X times 1e-8": (1e-8 * X, y, H, share),
        "X in mixed units": (X * 10.0 ** rng.uniform(-8, 8, p), y, H, share),
        "h = n": (X, y, n, share),
        "h = n / 2": (X, y, n // 2, share),
        "h = p": (X[:, : n // 4], y, n // 4, share),
    }
    if loss not in ("logistic", "multinomial"):
        X1, y1 = data["collinear: pairs"][:2]
        X2, y2 = data["collinear: 20 factors"][:2]
        scale = np.array([1e8, 1.0]) if loss == "cox" else 1e8  # of the time only
        data |= {
            "y times 1e8": (X, y * scale, H, share),
            "y times 1e-8": (X, y / scale, H, share),
            "pairs, y times 1e8": (X1, y1 * scale, H, share),
            "20 factors, y times 1e8": (X2, y2 * scale, H, share),
        }
    if loss == "huber":
        wide = np.random.default_rng(2).standard_normal((n * 5 // 2, 5 * p))
        y = response(wide, np.random.default_rng(1), True)
        data |= {
            "well-behaved, wide": (wide, y, H, share),
            "wide, alpha 0.06": (wide, y, H, 0.06 / largest_alpha(loss, wide, y)),
        }
    return data


def signal_of(X):
    return X[:, :3] @ np.array([2.0, -1.5, 1.0])


def _quadratic(X, rng, noise):
    return signal_of(X) + noise * rng.standard_normal(len(X))


def _classes(X, rng, noise):
    return (signal_of(X) + noise * rng.logistic(size=len(X)) > 0).astype(int)


def _multinomial(X, rng, noise):
    eta = 2 * np.column_stack([X[:, 0], X[:, 1], X[:, 2]])
    return np.argmax(eta + noise * rng.gumbel(size=eta.shape), axis=1)


def _poisson(X, rng, noise):
    """Without noise: no counts on one side of a hyperplane, so that the predictor falls without end there."""
    counts = rng.poisson(np.exp(0.5 * signal_of(X).clip(-8, 8))).astype(float)
    return counts if noise else np.where(X[:, 0] > 0, counts, 0.0)


def _gamma(X, rng, noise):
    mean = np.exp(0.5 * signal_of(X))
    return mean * rng.gamma(2.0, 0.5, len(X)) if noise else mean


def _cox(X, rng, noise):
    """Without noise the times are in the order of the predictor: the likelihood has no maximum."""
    times = np.exp(-signal_of(X))
    if noise:
        return np.column_stack([times * rng.exponential(size=len(X)), rng.random(len(X)) < 0.7])
    return np.column_stack([times, np.ones(len(X))])


def _multitask(X, rng, noise):
    return np.column_stack([signal_of(X), signal_of(X[:, 1:])]) + noise * rng.standard_normal((len(X), 2))


LOSSES = {
    "quadratic": ("TrimmedLasso", _quadratic),
    "huber": ("TrimmedHuberRegressor", _quadratic),
    "logistic": ("TrimmedLogisticRegression", _classes),
    "multinomial": ("TrimmedLogisticRegression", _multinomial),
    "poisson": ("TrimmedPoissonRegressor", _poisson),
    "gamma": ("TrimmedGammaRegressor", _gamma),
    "cox": ("TrimmedCoxRegressor", _cox),
    "multitask": ("MultiTaskTrimmedLasso", _multitask),
}


# -- the fits -----------------------------------------------------------------------------------------------


def estimator(loss, h, alpha):
    import trimreg

    model = getattr(trimreg, LOSSES[loss][0])(h=h, alpha=alpha)
    return model.set_params(l2=0.0) if "l2" in model.get_params() else model


def largest_alpha(loss, X, y):
    """The smallest alpha at which the lasso, on standardized columns, is the null model."""
    from trimreg.losses import get_loss

    Z = X - X.mean(axis=0)
    Z /= Z.std(axis=0)
    d, y = np.full(len(y), 1.0 / len(y)), y.astype(float)
    bound = get_loss(loss).bound(y, d)
    null = np.broadcast_to(bound.null_predictor(y, d), (len(y), bound.n_outputs)).astype(float)
    pull = Z.T @ bound.gradient(null if bound.multi_output else null[:, 0], y, d).reshape(len(y), -1)
    return float(np.linalg.norm(pull, axis=1).max())


class OutOfTime(Exception):
    """A fit took longer than it may."""


@contextmanager
def at_most(seconds):
    """Raise :class:`OutOfTime` after so many seconds of processor time."""

    def stop(number, frame):
        raise OutOfTime

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fit(loss, X, y, h, alpha, limit):
    """``(processor seconds, model, warning)``; the model is None if it took too long."""
    model = estimator(loss, h, alpha)
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with at_most(limit):
                model.fit(X, y)
        except OutOfTime:
            return time.process_time() - start, None, "out of time"
    said = {str(w.message).partition("(")[0].partition(";")[0].strip() for w in caught}
    return time.process_time() - start, model, "; ".join(sorted(said))
