"""Other losses: trimmed logistic regression against skglm, and fits without penalty against the classics."""

from __future__ import annotations

import warnings

import numpy as np

from .common import Section, one_thread, timed_in_turn

N, P, K = 1000, 5000, 30
SHARES = (0.3, 0.2)  # of alpha_max; at 0.1 the peer's MCP with gamma 3 takes more than a minute
GAMMAS = (3.0, 10.0)


def run(quick: bool = False) -> Section:
    one_thread()
    n, p, k = (300, 300, 5) if quick else (N, P, K)
    gammas = GAMMAS[1:] if quick else GAMMAS
    repeats = 2 if quick else 7
    section = Section(
        "Generalized linear models",
        f"Logistic, n={n}, p={p}, k={k}, AR(1) 0.5, coefficients +-1, h={k}, no intercept, float64, warm, best of {repeats} taken in turn, one BLAS thread. The DC loop "
        "starts from the l1 solution and ends when the h largest repeat. Ratios are to the faster of the MCPs. MCP minimizes another function; the "
        "last column shows its point under ours.",
        ["alpha / alpha_max", "fit", "seconds", "/ MCP", "nonzeros", "objective / DC loop's - 1"],
    )  # fmt: skip
    for share in SHARES[: 1 if quick else None]:
        logistic(section, n, p, k, share, gammas, repeats)
    if not quick:
        section.remarks.append(
            "With gamma = 3 the peer's solver needs many more steps at the smaller alpha than with gamma = 10. The curvature of the logistic loss is at most 1/4 "
            "where columns have variance one, so that loss and MCP together may be concave along a coordinate; that this is the reason was not examined."
        )
    for name, difference in agreement(quick).items():
        section.bar(
            f"{name}, h = p: largest relative difference 1e-6", f"{difference:.1e}", difference <= 1e-6
        )
    section.remarks.append(
        "Agreement at h = p: no coefficient is penalized, tolerances of both sides 1e-10 where they have one. Differences are of "
        "the coefficients with the intercept, relative to the largest of them; for the multinomial model, whose coefficients are not unique, of "
        "the probabilities."
    )
    return section


def logistic(section: Section, n, p, k, share, gammas, repeats) -> None:
    """Add the rows and bars of one alpha."""
    from scipy.special import expit
    from skglm import GeneralizedLinearEstimator
    from skglm.datafits import Logistic
    from skglm.penalties import MCPenalty, WeightedL1
    from skglm.solvers import ProxNewton

    from trimreg import TrimmedL1, solve
    from trimreg.datasets import make_ar1

    data = make_ar1(n, p, k, rho=0.5, snr=np.inf, random_state=0)
    X = np.asfortranarray(data.X)
    y = (np.random.default_rng(0).random(n) < expit(data.y)).astype(float)
    alpha = share * np.abs(X.T @ (y - 0.5)).max() / n
    penalty = TrimmedL1(k).bind(p)

    def objective(coef):
        eta = X @ coef
        return np.mean(np.logaddexp(0.0, eta) - y * eta) + penalty.value(coef, alpha)

    def mcp(gamma):
        solver = ProxNewton(fit_intercept=False)
        model = GeneralizedLinearEstimator(Logistic(), MCPenalty(alpha, gamma), solver)
        return model.fit(X, y).coef_.ravel()

    def dc_loop(tol):
        weights = np.ones(p)
        solver = ProxNewton(fit_intercept=False, warm_start=True, tol=tol)
        model = GeneralizedLinearEstimator(Logistic(), WeightedL1(alpha, weights), solver)
        for _ in range(50):
            coef = model.fit(X, y).coef_.ravel()
            following = np.ones(p)
            following[np.argpartition(-np.abs(coef), k)[:k]] = 0.0
            if np.array_equal(following, weights):
                break
            weights = following
            model.penalty = WeightedL1(alpha, weights)
        return coef

    def trimmed(effort):
        return solve(X, y, loss="logistic", penalty=TrimmedL1(k), alpha=alpha, effort=effort).coef

    peers = {f"skglm logistic + MCP, gamma {gamma:g}": lambda g=gamma: mcp(g) for gamma in gammas}
    fits = peers | {
        "DC loop over skglm's weighted l1": lambda: dc_loop(1e-4),
        "the same, tol=1e-8": lambda: dc_loop(1e-8),
        'trimreg effort="low"': lambda: trimmed("low"),
        'trimreg effort="medium"': lambda: trimmed("medium"),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the peer's convergence warnings are its own affair
        seconds, coefs = timed_in_turn(fits, repeats)
    *_, loop, low, medium = fits
    fastest = min(seconds[name] for name in peers)
    value = {name: objective(coef) for name, coef in coefs.items()}
    for name, coef in coefs.items():
        section.rows.append([
            share, name, f"{seconds[name]:.4f}", f"{seconds[name] / fastest:.2f}", int(np.count_nonzero(coef)),
            f"{value[name] / value[loop] - 1:+.1e}",
        ])  # fmt: skip
    ratio = {name: seconds[name] / fastest for name in fits}
    for name in (low, medium):
        effort = name.partition("=")[2]
        if name == low:
            section.bar(
                f"alpha {share}, {effort}: at most 1.2 times MCP", f"{ratio[name]:.2f}", ratio[name] <= 1.2
            )
        excess = value[name] / value[loop] - 1
        section.bar(
            f"alpha {share}, {effort}: objective no larger than the loop's", f"{excess:+.1e}", excess <= 1e-6
        )
    section.remarks.append(
        f'Alpha {share}: effort="medium", the default, which looks for a better local minimum, takes {ratio[medium]:.2f} times the time of MCP, and '
        f'ends {100 * (1 - value[medium] / value[low]):.1f} % lower than "low".'
    )
    section.headline.append([
        f"trimmed logistic regression, n={n}, p={p}, alpha {share} of the largest, against skglm's MCP (warm)",
        f'effort="low" takes {ratio[low]:.2f}, "medium" {ratio[medium]:.2f} of its time',
    ])  # fmt: skip


def agreement(quick: bool) -> dict:
    """Largest relative difference from the unpenalized fit of another library, by name of the model."""
    n, p = (200, 5) if quick else (1000, 20)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, p)) * np.geomspace(0.5, 2.0, p) + 0.3
    beta = 0.4 * rng.standard_normal(p) / np.sqrt(p)
    eta = X @ beta + 0.5
    return {
        "Poisson against statsmodels": _poisson(X, rng.poisson(np.exp(eta)).astype(float)),
        "Gamma against statsmodels": _gamma(X, rng.gamma(2.0, np.exp(eta) / 2.0)),
        "Cox (Efron ties) against lifelines": _cox(X, eta, rng),
        "multinomial against scikit-learn": _multinomial(X, rng),
    }


def relative(ours, theirs) -> float:
    return float(np.max(np.abs(ours - theirs)) / np.max(np.abs(theirs)))


def _poisson(X, y):
    import statsmodels.api as sm

    from trimreg import TrimmedPoissonRegressor

    peer = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson()).fit(tol=1e-12, tol_criterion="params")
    model = TrimmedPoissonRegressor(h=X.shape[1], tol=1e-10).fit(X, y)
    return relative(np.append(model.intercept_, model.coef_), peer.params)


def _gamma(X, y):
    import statsmodels.api as sm

    from trimreg import TrimmedGammaRegressor

    family = sm.families.Gamma(sm.families.links.Log())
    peer = sm.GLM(y, sm.add_constant(X), family=family).fit(tol=1e-12, tol_criterion="params", maxiter=500)
    model = TrimmedGammaRegressor(h=X.shape[1], tol=1e-10).fit(X, y)
    return relative(np.append(model.intercept_, model.coef_), peer.params)


def _cox(X, eta, rng):
    import pandas as pd
    from lifelines import CoxPHFitter

    from trimreg import TrimmedCoxRegressor

    time = np.ceil(20 * rng.exponential(np.exp(-eta))) / 20  # rounded, so that there are ties
    event = rng.random(eta.size) < 0.7
    frame = pd.DataFrame(X).assign(time=time, event=event.astype(int))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = CoxPHFitter().fit(frame, "time", "event", fit_options={"precision": 1e-12})
    model = TrimmedCoxRegressor(h=X.shape[1], tol=1e-10).fit(X, np.column_stack([time, event]))
    return relative(model.coef_, peer.params_.to_numpy())


def _multinomial(X, rng):
    from sklearn.linear_model import LogisticRegression

    from trimreg import TrimmedLogisticRegression

    signal = X @ rng.standard_normal((X.shape[1], 3)) / np.sqrt(X.shape[1])
    y = np.argmax(signal + rng.gumbel(size=signal.shape), axis=1)
    peer = LogisticRegression(C=np.inf, solver="newton-cg", tol=1e-10, max_iter=10_000).fit(X, y)
    model = TrimmedLogisticRegression(h=X.shape[1], tol=1e-10).fit(X, y)
    return relative(model.predict_proba(X), peer.predict_proba(X))
