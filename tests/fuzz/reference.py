"""What must hold of a result, computed again in NumPy alone, in extended precision where it is available.

``wrong(case, result)`` is the first thing that does not hold, or an empty string.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LONG = np.longdouble
EPS = float(np.finfo(float).eps)


def wrong(case: Any, result: Any, warned: bool) -> str:
    """What is wrong with the result of a case; ``warned`` says that it was called not converged."""
    facts = case.facts
    if case.kind == "graph":
        return _graph(facts, result)
    if case.kind == "batch":
        return _numbers(result, ("coef", "intercept", "objective", "weights", "theta"))
    if case.kind == "steps":
        return next(
            (found for step in result if (found := _numbers(step, ("coef", "intercept", "objective")))), ""
        )
    if case.kind in ("path", "resample", "cv"):
        return _others(case.kind, facts, result)
    if case.kind == "certify":
        gap = result.upper - result.lower  # inf where no bound is found: it holds
        return (
            ""
            if np.isfinite(result.upper) and gap >= -1e-9 * abs(result.upper)
            else f"bounds {result.lower}, {result.upper}"
        )
    if case.kind == "near_best":
        return ""
    model = result if case.kind == "fit" else None
    result = result.result_ if model is not None else result
    return _fit(facts, model, result, warned)


def _numbers(result, names):
    for name in names:
        if not np.isfinite(np.asarray(getattr(result, name), dtype=float)).all():
            return f"{name} is not finite"
    return ""


def _others(kind, facts, result):
    if kind == "cv":
        return _numbers(result, ("coef_", "intercept_", "objective_"))
    if kind == "path":
        return "" if np.isfinite(result.objectives).all() else "objective of a path is not finite"
    return (
        ""
        if np.isfinite(getattr(result, "selection_frequency_", 0.0)).all()
        else "frequencies are not finite"
    )


def _graph(facts, model):
    P = np.asarray(model.precision_, dtype=float)
    if not np.isfinite(P).all():
        return "precision is not finite"
    deviation = np.sqrt(np.diagonal(P))
    scaled = P / deviation / deviation[:, None]
    if np.linalg.eigvalsh(scaled)[0] <= 0:
        return f"precision has an eigenvalue {np.linalg.eigvalsh(scaled)[0]:.2g}"
    edges = np.count_nonzero(np.triu(P, 1))
    if facts["alpha"] == "exact" and edges > facts["h"]:
        return f"{edges} edges, h = {facts['h']}"
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


def _fit(facts, model, result, warned):
    found = _numbers(result, ("coef", "intercept", "weights", "objective", "stationarity", "alpha"))
    if found:
        return found
    name, X = facts["loss"], facts["X"].astype(LONG)
    y, (n, p) = np.asarray(facts["y"]), X.shape
    if name == "cox" and y.ndim == 1:
        y = np.column_stack([np.abs(y), y >= 0])
    y = y.astype(LONG)
    w = np.ones(n) if facts["sample_weight"] is None else np.asarray(facts["sample_weight"])
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
    scale = facts.get("scale")
    loss, slope = loss_and_slope(name, eta, y, d, scale)

    null_eta = _null(name, y, d, outputs, facts["fit_intercept"])
    null, null_slope = loss_and_slope(name, null_eta, y, d, scale)
    # Rounding of a predictor whose terms cancel, and its effect on the loss.
    size = (np.abs(X - mean) @ np.abs(coef.T)).max(axis=1)
    live = d > 0
    steep = np.sqrt(np.sum((slope[live].T ** 2) / d[live]))
    rounding = 1e3 * EPS * steep * np.sqrt(d @ (size + np.abs(eta).max() + np.abs(null_eta).max()) ** 2)

    label = np.asarray(facts.get("groups", np.arange(p)))
    label = np.unique(label, return_inverse=True)[1]
    count = label.max() + 1
    sizes = np.bincount(label)
    factor = facts["penalty_factor"]
    factor = np.sqrt(sizes) if factor is None else factor
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.array([np.sum(theta[:, label == g] ** 2) for g in range(count)]))
    regular = (factor > 0) & np.isfinite(factor)
    if np.any(coef[:, np.isinf(factor)[label]]):
        return "an excluded coefficient is not 0"
    if facts["positive"] and np.any(coef < 0):
        return "a coefficient is negative"
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
    if not result.objective <= null + allowed:
        return f"objective {result.objective:.12g} above the null model's {float(null):.12g}"
    if model is not None and not np.isfinite(model.predict(facts["X"]).astype(float)).all():
        return "predictions are not finite"
    if not result.converged or warned or facts.get("penalty") == "slope":
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
        aim = 1e-3 * max(natural, steep) * longest + 1e4 * EPS * longest * np.abs(size).max() * (
            1 + facts["l2"]
        )
    for g in range(count):
        inside = label == g
        if np.isinf(factor[g]) or norms[inside].max() <= 1e-12 * np.abs(X[:, inside]).max():
            continue
        level = threshold[g] * (along[inside] if inside.sum() > 1 else along[inside][0])
        pull, here = gradient[:, inside], theta[:, inside]
        if facts["positive"]:
            pull = np.where(here > 0, pull, np.minimum(pull, 0.0))
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
