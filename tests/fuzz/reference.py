"""What must hold of a result, computed again in NumPy alone, in extended precision where it is available.

``wrong(case, result)`` is the first thing that does not hold, or an empty string.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import numpy as np

import trimreg

LONG = np.longdouble
EPS = float(np.finfo(float).eps)


def wrong(case: Any, result: Any, warned: bool) -> str:
    """What is wrong with the result of a case; ``warned`` says that it was called not converged."""
    facts, check = case.facts, globals()[f"_{case.kind}"]
    return check(facts, result) if check.__code__.co_argcount == 2 else check(facts, result, warned)


def _first(findings):
    return next((found for found in findings if found), "")


def _numbers(result, *names):
    return _first(
        f"{name} is not finite"
        for name in names
        if not np.isfinite(np.asarray(getattr(result, name), dtype=float)).all()
    )


def _fit(facts, model, warned):
    found = _point(facts, model, model.result_, warned)
    if not found and facts["seed"] % 8 == 0 and facts["solver"] != "auto":
        with tempfile.TemporaryDirectory() as folder:
            again = trimreg.load(trimreg.save(model, f"{folder}/model.json"))
        ours, theirs = (np.ravel(one.predict(facts["X"])) for one in (model, again))
        same = np.allclose(ours, theirs, 1e-5) if ours.dtype.kind == "f" else np.array_equal(ours, theirs)
        if not same:
            return "a saved model predicts otherwise"
    return found


def _solve(facts, result, warned):
    return _point(facts, None, result, warned)


def _steps(facts, results):
    facts = facts | {"theta0": 0.0}  # a step may be above the null model, and have more than h nonzeros
    return _first(_point(facts | {"alpha": step.alpha}, None, step, True) for step in results)


def _batch(facts, result):
    rows = (
        (facts["X"] if facts["X"].ndim == 2 else facts["X"][b], facts["y"][b]) for b in range(len(facts["y"]))
    )
    names = ("coef", "intercept", "weights", "objective", "stationarity", "alpha")
    return _first(
        _point(
            facts | {"X": X, "y": y, "theta0": 0.0},
            None,
            SimpleNamespace(**{name: getattr(result, name)[b] for name in names}),
            True,
        )
        for b, (X, y) in enumerate(rows)
    )


def _path(facts, path, warned):
    for (i, h), (j, alpha) in product(enumerate(path.hs), enumerate(path.alphas)):
        result = replace(path.results[i][j], stationarity=0.0)
        found = _point(facts | {"h": h, "alpha": alpha}, None, result, warned)
        if found:
            return f"cell {h}, {alpha}: {found}"
    F = path.objectives
    room = 1e-6 * np.abs(F).max()
    if np.any(np.diff(F, axis=0) > room) or np.any(np.diff(F, axis=1) > room):
        return f"objectives of a path rise: {F}"
    return ""


def _cv(facts, model, warned):
    """The chosen fit, and the errors of best subsets of at most one feature, fitted to every fold anew."""
    facts = facts | {"h": model.h_, "alpha": model.chosen_alpha_, "l2": model.l2_}
    found = _point(facts, model, model.result_, warned)
    if found or facts["loss"] != "quadratic" or not _moderate(facts) or facts["sample_weight"] is not None:
        return found
    X, y = facts["X"], facts["y"]
    for fold, test in enumerate(np.array_split(np.arange(len(y)), 3)):
        train = np.setdiff1d(np.arange(len(y)), test)
        some = facts | {"X": X[train], "y": y[train]}
        fits = [_subset(some, list(free)) for free in _supports(some)]
        least = min(value for value, *_ in fits)
        errors = [
            np.mean((y[test] - b - X[test] @ coef) ** 2)
            for value, coef, b in fits
            if value <= least + 1e-9 * np.mean(y[train] ** 2)
        ]
        error = -model.score_path_[model.best_index_][fold]
        room = 1e-6 * (max(errors) + np.mean(y**2))
        if not min(errors) - room <= error <= max(errors) + room:
            return f"error of fold {fold} is {error:.9g}, by the reference one of {errors}"
    return ""


def _bootstrap(facts, model):
    counts = model.frequencies_ * facts["n_replicates"]
    if not np.allclose(counts, np.round(counts)) or counts.sum() > facts["n_replicates"] * facts["h"] + 1e-9:
        return f"frequencies {model.frequencies_}, h = {facts['h']}"
    return _numbers(model, "coefs_", "standard_errors_")


def _stability(facts, model):
    counts = model.stability_path_ * 2 * facts["n_pairs"]
    most = 2 * facts["n_pairs"] * np.asarray(model.hs_)
    if not np.allclose(counts, np.round(counts)) or np.any(counts.sum(axis=1) > most + 1e-9):
        return f"frequencies {model.stability_path_}, hs = {model.hs_}"
    return ""


def _certify(facts, result):
    """The bounds, against the best of all subsets where these are few."""
    if not np.isfinite(result.upper) or result.upper - result.lower < -1e-9 * abs(result.upper):
        return f"bounds {result.lower}, {result.upper}"
    best, room = _best(facts)
    if best is not None and not result.lower - room <= best <= result.upper + room:
        return f"bounds {result.lower}, {result.upper}; best subset {best}"
    return ""


def _near_best(facts, result):
    best, room = _best(facts)
    if best is not None and abs(result.best - best) > room and result.complete:
        return f"best {result.best}, by the reference {best}"
    factor = facts["penalty_factor"]
    always = [] if factor is None else np.flatnonzero(np.asarray(factor) == 0)
    supports = [sorted({*always, *free}) for free in result.supports] if best is not None else []
    values = [_subset(facts, free)[0] for free in supports]
    if values and np.any(np.abs(result.objectives - values) > room):
        return f"objectives {result.objectives}, by the reference {values}"
    return _numbers(result, "objectives")


def _diagnose(facts, result):
    names = {"Swap": ("gain",), "WorstCase": ("value",), "LocalMinimumCheck": ("violation",)}
    value = [getattr(result, name) for name in names.get(type(result).__name__, ())] or result
    return "" if np.all(np.asarray(value, dtype=float) >= 0) else f"{value} is not a number >= 0"


# -- best subsets ------------------------------------------------------------------------------------------


def _moderate(facts):
    """Whether least squares in float64 is to be trusted, and subsets are all there is."""
    X = facts["X"]
    spread = X.std(axis=0) if facts["fit_intercept"] else np.sqrt(np.mean(X**2, axis=0))
    plain = facts["alpha"] == "exact" and facts["groups"] is None and not facts["positive"]
    plain = plain and facts["lower"] is None and facts["upper"] is None
    with np.errstate(all="ignore"):
        fine = (spread > 1e-3 * np.abs(X).max(axis=0)) & (spread > 1e-6) & (spread < 1e6)
    size = np.abs(facts["y"]).max()
    return plain and (fine | ~X.any(axis=0)).all() and 1e-6 < size < 1e3 * facts["y"].std() < 1e9


def _supports(facts):
    """All free sets of h, with what is never penalized."""
    p = facts["X"].shape[1]
    factor = np.ones(p) if facts["penalty_factor"] is None else facts["penalty_factor"]
    always, regular = np.flatnonzero(factor == 0), np.flatnonzero((factor > 0) & np.isfinite(factor))
    return [(*always, *free) for free in combinations(regular, min(facts["h"], regular.size))]


def _subset(facts, free):
    """``(objective, coefficients, intercept)`` of least squares with these columns."""
    X, y = facts["X"], facts["y"]
    w = facts["sample_weight"]
    d = np.full(len(y), 1 / len(y)) if w is None else np.asarray(w, dtype=float) / np.sum(w)
    mean, center = (d @ X, d @ y) if facts["fit_intercept"] else (np.zeros(X.shape[1]), 0.0)
    unit = np.sqrt(d @ (X - mean) ** 2) if facts["standardize"] else np.ones(X.shape[1])
    unit = np.where(unit > 0, unit, 1.0)
    factor = np.ones(X.shape[1]) if facts["penalty_factor"] is None else facts["penalty_factor"]
    root, ridge = np.sqrt(d), np.diag(np.sqrt(facts["l2"] * factor[free]))
    A = np.vstack([root[:, None] * ((X - mean) / unit)[:, free], ridge])
    b = np.append(root * (y - center), np.zeros(len(free)))
    theta = np.linalg.lstsq(A, b, rcond=1e-13)[0] if free else np.zeros(0)
    coef = np.zeros(X.shape[1])
    coef[free] = theta / unit[free]
    return 0.5 * float(np.sum((b - A @ theta) ** 2)), coef, center - mean @ coef


def _best(facts):
    """The least objective of all subsets and its tolerance; None where they are many or ill-conditioned."""
    if facts["loss"] != "quadratic" or not _moderate(facts):
        return None, 0.0
    supports = _supports(facts)
    if len(supports) > 130:
        return None, 0.0
    return min(_subset(facts, list(free))[0] for free in supports), 1e-6 * float(np.mean(facts["y"] ** 2))


# -- graphs ------------------------------------------------------------------------------------------------


def _graph(facts, model, warned):
    S, scores = facts["X"].astype(LONG), model.result_
    S = S - S.mean(axis=0)
    S = (S - S.mean(axis=0)).T @ (S - S.mean(axis=0)) / len(S)
    return _graph_point(facts | {"S": S}, scores, warned or model.precision_.dtype != float)


def _solve_graphical(facts, result, warned):
    return _graph_point(facts, result, warned)


def _graph_cv(facts, model, warned):
    return _graph(facts | {"h": model.h_, "alpha": model.alpha_}, model, warned)


def _graph_path(facts, path):
    for (i, h), (j, alpha) in product(enumerate(path.hs), enumerate(path.alphas)):
        result = SimpleNamespace(
            precision=path.precisions[i, j], objective=path.objectives[i, j], alpha=path.alpha_values[i, j]
        )
        found = _graph_point(facts | {"h": h, "alpha": alpha}, result, True)
        if found:
            return f"cell {h}, {alpha}: {found}"
    rise = np.diff(path.objectives, axis=0) > 1e-6 * np.abs(path.objectives).max()
    return "objectives of a path rise" if rise.any() else ""


def _graph_point(facts, result, warned):
    """Definiteness, number of edges, objective and optimality conditions."""
    P = np.asarray(result.precision, dtype=float)
    if not np.isfinite(P).all():
        return "precision is not finite"
    deviation = np.sqrt(np.diagonal(P))
    scaled = P / deviation / deviation[:, None]
    if np.linalg.eigvalsh(scaled)[0] <= 0:
        return f"precision has an eigenvalue {np.linalg.eigvalsh(scaled)[0]:.2g}"
    edges = np.count_nonzero(np.triu(P, 1))
    if facts["alpha"] == "exact" and edges > facts["h"]:
        return f"{edges} edges, h = {facts['h']}"
    S = np.asarray(facts["S"], dtype=LONG)
    S = (1 - facts["shrinkage"]) * S + facts["shrinkage"] * np.diag(np.diagonal(S))
    unit = np.sqrt(np.diagonal(S)) if facts["standardize"] else np.ones(len(S), dtype=LONG)
    inner = P.astype(LONG) * unit * unit[:, None]
    sizes = np.sort(np.abs(inner[np.triu_indices(len(S), 1)]))
    logdet = np.linalg.slogdet(scaled)[1] + 2 * np.log(deviation.astype(LONG) * unit).sum()
    objective = np.sum(S * P) - logdet + 2 * result.alpha * sizes[: max(0, sizes.size - facts["h"])].sum()
    rounding = 1e2 * EPS * np.sum(np.abs(S * P)) + EPS * len(S) * np.linalg.cond(scaled)
    if not abs(objective - result.objective) <= 1e-6 * (abs(objective) + len(S)) + rounding:
        return f"objective {result.objective:.12g}, by the reference {float(objective):.12g}"
    if warned or not result.converged or facts["solver"] != "mm":
        return ""
    W = np.linalg.inv(scaled) / deviation / deviation[:, None]
    size = np.sqrt(np.outer(np.diagonal(S), np.diagonal(S)))
    level = result.alpha * np.asarray(result.weights) * (unit * unit[:, None]) / size
    gradient = (S - W) / size
    distance = np.where(
        P != 0, np.abs(gradient + level * np.sign(P)), np.maximum(np.abs(gradient) - level, 0)
    )
    goal = 1e-3 * np.sqrt(max(1.0, abs(result.objective)))
    if np.max(distance / (1 + level)) > goal:
        return f"converged, and an entry violates its condition by {float(np.max(distance)):.2g}"
    return ""


# -- losses: value and slope for weights d that sum to one -------------------------------------------------


def _huber(eta, y, d, scale):
    size, eps = np.abs(y - eta), 1.35
    if scale is None:
        floor = _smallest_scale(y, d)
        low, high = (
            floor,
            max(float(np.sqrt(d @ (size / max(size.max(), np.finfo(LONG).tiny)) ** 2) * size.max()), floor),
        )
        for _ in range(200):  # sum d min((r/s)^2, eps^2) falls in s
            middle = np.sqrt(LONG(low) * LONG(high)) if low > 0 else (low + high) / 2
            low, high = (middle, high) if d @ np.minimum((size / middle) ** 2, eps**2) > 1 else (low, middle)
        scale, plus = high, 0.5 * high
    else:
        plus = 0.0
    within = np.minimum(size, eps * scale)
    slope = d * np.clip((eta - y) / scale, -eps, eps)
    return d @ (0.5 * within * (within / scale) + eps * (size - within)) + plus, slope


def _smallest_scale(y, d):
    counted = y[d > 0]
    distance = np.abs(counted - np.median(counted))
    distance = distance[distance > 0]
    return LONG(1e-8) * (np.median(distance) if distance.size else abs(np.median(counted)) or 1.0)


def _cox(eta, y, d):
    """Efron's ties."""
    time, event = y[:, 0], (y[:, 1] > 0) & (d > 0)
    value, slope = LONG(0), np.zeros_like(eta)
    unit = np.log(d.sum() / np.sum(d**2))
    for t in np.unique(time[event]):
        dead, at_risk = event & (time == t), time >= t
        mean, top = d[dead].sum() / dead.sum(), eta[at_risk & (d > 0)].max()
        risk = d * np.exp(np.minimum(eta - top, 0.0))  # later sets have their own top
        for part in np.arange(dead.sum()) / dead.sum():
            share = risk * at_risk - part * risk * dead
            value += mean * (np.log(share.sum()) + unit + top)
            slope += mean * share / share.sum()
    value -= d[event] @ eta[event]
    slope[event] -= d[event]
    return value, slope


def loss_and_slope(name: str, eta: Any, y: Any, d: Any, scale: Any = None) -> tuple[Any, Any]:
    """The loss and its derivative in eta."""
    with np.errstate(all="ignore"):
        if name == "quadratic":
            return 0.5 * (d @ (y - eta) ** 2), d * (eta - y)
        if name == "multitask":
            return 0.5 * np.sum(d[:, None] * (y - eta) ** 2), d[:, None] * (eta - y)
        if name == "logistic":
            sign = np.where(y > 0, 1.0, -1.0)
            return d @ np.logaddexp(0, -sign * eta), d * (-sign / (1 + np.exp(sign * eta)))
        if name == "poisson":
            return d @ (np.exp(eta) - y * eta), d * (np.exp(eta) - y)
        if name == "gamma":
            return d @ (y * np.exp(-eta) + eta), d * (1 - y * np.exp(-eta))
        if name == "multinomial":
            top = eta.max(axis=1, keepdims=True)
            log_sum = np.log(np.exp(eta - top).sum(axis=1)) + top[:, 0]
            own = np.eye(eta.shape[1])[y.astype(int)]
            return d @ (log_sum - (own * eta).sum(axis=1)), d[:, None] * (
                np.exp(eta - log_sum[:, None]) - own
            )
    return _huber(eta, y, d, scale) if name == "huber" else _cox(eta, y, d)


def _null(name, y, d, outputs, intercept):
    """The predictor of a null model: the best constant, or the median for Huber's loss; 0 without one."""
    with np.errstate(all="ignore"):
        if not intercept or name == "cox":
            best = LONG(0)
        elif name == "quadratic" or name == "multitask":
            best = d @ y
        elif name == "huber":
            best = np.median(y[d > 0])
        elif name == "logistic":
            mean = np.clip(d @ (y > 0), 1e-300, 1 - 1e-16)
            best = np.log(mean / (1 - mean))
        elif name == "multinomial":
            best = np.log(np.maximum(d @ np.eye(outputs)[y.astype(int)], 1e-300))
        else:
            best = np.log(max(d @ y, LONG("1e-300")))
    shape = (len(d), outputs) if name in ("multinomial", "multitask") else len(d)
    return np.zeros(shape, dtype=LONG) + best


# -- linear models -----------------------------------------------------------------------------------------


def _point(facts, model, result, warned):
    found = _numbers(result, "coef", "intercept", "weights", "objective", "stationarity", "alpha")
    if found:
        return found
    name, X = facts["loss"], facts["X"].astype(LONG)
    y, (n, p) = np.asarray(facts["y"]), X.shape
    if name == "cox" and y.ndim == 1:
        y = np.column_stack([np.abs(y), y >= 0])
    y = y.astype(LONG)
    w = np.ones(n) if facts["sample_weight"] is None else np.array(facts["sample_weight"], dtype=float)
    if facts["n_outliers"]:
        if facts["standardize"]:
            return ""  # columns are scaled with the samples that are left out
        w[result.outliers] = 0
    d = w.astype(LONG) / w.astype(LONG).sum()
    coef = np.atleast_2d(np.asarray(result.coef, dtype=LONG))
    several = name in ("multinomial", "multitask")
    outputs = coef.shape[0]
    centered = facts["fit_intercept"] or name == "cox"
    mean = d @ X if centered else np.zeros(p, dtype=LONG)
    mean = mean + (d @ (X - mean) if centered else 0)
    norms = np.sqrt(d @ (X - mean) ** 2)
    unit = norms if facts["standardize"] else np.ones(p)
    theta = coef * unit  # in the coordinates of the penalty
    eta = X @ coef.T + np.asarray(result.intercept, dtype=LONG)
    eta = eta if several else eta[:, 0]
    scale = facts["scale"]
    loss, slope = loss_and_slope(name, eta, y, d, scale)

    null_eta = _null(name, y, d, outputs, facts["fit_intercept"])
    null, null_slope = loss_and_slope(name, null_eta, y, d, scale)
    # Rounding of a predictor whose terms cancel, and its effect on the loss.
    size = (np.abs(X - mean) @ np.abs(coef.T)).max(axis=1)
    live = d > 0
    steep = np.sqrt(np.sum((slope[live].T ** 2) / d[live]))
    rounding = 1e3 * EPS * steep * np.sqrt(d @ (size + np.abs(eta).max() + np.abs(null_eta).max()) ** 2)

    label = np.arange(p) if facts["groups"] is None else np.asarray(facts["groups"])
    label = np.unique(label, return_inverse=True)[1]
    count = label.max() + 1
    sizes = np.bincount(label)
    factor = facts["penalty_factor"]
    factor = np.sqrt(sizes) if factor is None else factor
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.array([np.sum(theta[:, label == g] ** 2) for g in range(count)]))
        if facts["q"] == np.inf:
            lengths = np.array([np.max(np.abs(theta[:, label == g])) for g in range(count)])
    regular = (factor > 0) & np.isfinite(factor)
    if np.any(coef[:, np.isinf(factor)[label]]):
        return "an excluded coefficient is not 0"
    lower = 0.0 if facts["positive"] and facts["lower"] is None else facts["lower"]
    lower = np.broadcast_to(-np.inf if lower is None else lower, coef.shape)
    upper = np.broadcast_to(np.inf if facts["upper"] is None else facts["upper"], coef.shape)
    kind = np.asarray(result.coef).dtype  # a bound is rounded as the coefficients are
    lower, upper = lower.astype(kind), upper.astype(kind)
    if np.any((coef < lower) | (coef > upper)):
        return "a coefficient is beyond a bound"
    free = min(facts["h"], int(regular.sum()))
    if facts["alpha"] == "exact" and np.count_nonzero(lengths[regular]) > free:
        return f"{np.count_nonzero(lengths[regular])} nonzeros, h = {facts['h']}"
    finite = np.where(np.isinf(factor), 0.0, factor)
    ridge = facts["l2"] * 0.5 * np.sum(finite[label] * np.sum(theta**2, axis=0))
    if "penalty" in facts and facts["penalty"] != "l1":
        penalty = result.objective - loss - ridge  # MCP, SCAD, SLOPE: their values are tested elsewhere
    else:
        r = np.sort((finite * lengths)[regular])
        penalty = result.alpha * r[: r.size - free].sum()
    objective = loss + ridge + penalty
    origin = abs(loss_and_slope(name, np.zeros_like(eta), y, d, scale)[0])
    allowed = 1e-6 * (abs(objective) + abs(null)) + rounding + 1e-9 * (origin if np.isfinite(origin) else 0.0)
    if not abs(objective - result.objective) <= allowed:
        return f"objective {result.objective:.12g}, by the reference {float(objective):.12g}"
    if facts["theta0"] is None and not result.objective <= null + allowed:
        return f"objective {result.objective:.12g} above the null model's {float(null):.12g}"
    predicted = None if model is None else np.asarray(model.predict(facts["X"]))
    if predicted is not None and predicted.dtype.kind == "f" and not np.isfinite(predicted).all():
        return "predictions are not finite"
    if warned or not result.converged or facts.get("penalty") == "slope" or facts["q"] == np.inf:
        return ""
    if name == "huber" and scale is None and loss <= 1e-5 * max(null, origin):
        return ""  # residuals are rounding of the coefficients
    # Stationarity for the weights of the result, for columns of norm one (first-order methods: as they are)
    gradient = np.atleast_2d(((X - mean).T @ slope).T)
    natural = np.sqrt(np.sum((null_slope[live].T ** 2) / d[live]))
    divisor = np.sqrt(norms**2 + facts["l2"] * finite[label] * unit**2) if facts["solver"] == "mm" else unit
    divisor = np.where(divisor > 0, divisor, 1.0)
    with np.errstate(all="ignore"):
        gradient, along, longest = gradient / divisor, unit / divisor, (norms / divisor).max()
        constant = facts["fit_intercept"] and name not in ("quadratic", "multitask", "cox")
        longest = max(longest, LONG(constant or facts["solver"] == "mm"))
        gradient = gradient + facts["l2"] * finite[label] * theta * along
        threshold = result.alpha * np.asarray(result.weights, dtype=LONG) * finite
        aim = max(1e-3, 30 * facts["tol"]) * max(natural, steep) * longest + 1e4 * EPS * longest * np.abs(
            size
        ).max() * (1 + facts["l2"])
    for g in range(count):
        inside = label == g
        if np.isinf(factor[g]) or norms[inside].max() <= 1e-12 * np.abs(X[:, inside]).max():
            continue
        level = threshold[g] * (along[inside] if inside.sum() > 1 else along[inside][0])
        pull, here = gradient[:, inside], theta[:, inside]
        # At a bound only a pull inward counts. There the penalty's own slope, if it points outward, does not.
        if (lower > -np.inf).any() or (upper < np.inf).any():
            slope_here = level * np.sign(here) * (lengths[g] > 0)
            at = coef[:, inside]
            low, high = at <= lower[:, inside], at >= upper[:, inside]
            pull = np.where(low, np.minimum(pull + slope_here, 0.0) - slope_here, pull)
            pull = np.where(high, np.maximum(pull + slope_here, 0.0) - slope_here, pull)
        if lengths[g] > 0:
            distance = np.sqrt(np.sum((pull + level * here / lengths[g]) ** 2))
        else:
            if facts["solver"] == "dc":  # its critical points take zeros for penalized, whatever their place
                level = result.alpha * finite[g] * along[inside][0]
            distance = np.sqrt(np.sum(pull**2)) - np.max(level)
        if distance > aim + 1e-3 * np.max(level):
            share = float(distance / aim) * 1e-3
            return f"converged, and part {g} violates its condition by {share:.2g} of the slope"
    return ""
