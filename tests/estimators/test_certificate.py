"""Certificates: what they claim, that a checker confirms it, and that nothing else passes."""

import json
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp

import trimreg
from trimreg import TrimmedGroupLasso, TrimmedLasso, TrimmedLogisticRegression
from trimreg.diagnostics import verify_certificate
from trimreg.losses import Huber
from trimreg.solvers.certify import tree
from trimreg.solvers.certify.general import GeneralRelaxation


def data(n=60, p=10, seed=0, signal=1.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X[:, 1] += 0.9 * X[:, 0]
    return X, signal * X[:, :3].sum(axis=1) + rng.standard_normal(n)


def hard_data():
    """Data for which the bound at the root does not decide everything."""
    return data(n=40, p=14, seed=9, signal=0.1)


SETTINGS = {
    "squares": {"h": 3},
    "soft": {"h": 3, "alpha": 0.05, "l2": 0.01},
    "groups": {"h": 2, "groups": [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], "l2": 0.01},
    "factors": {"h": 2, "penalty_factor": [0, 1, 1, 2, np.inf, 1, 1, 1, 1, 0.5], "l2": 0.01},
    "no intercept": {"h": 3, "fit_intercept": False, "standardize": False},
    "logistic": {"h": 3, "loss": "logistic", "l2": 0.02},
    "logistic, soft": {"h": 2, "loss": "logistic", "l2": 0.02, "alpha": 0.03},
    "poisson": {"h": 2, "loss": "poisson", "l2": 0.1},
    "huber": {"h": 2, "loss": Huber(scale=1.0), "l2": 0.1, "penalty_factor": [0, *[1.0] * 9]},
}


def target_for(setting, y):
    loss = setting.get("loss")
    if loss == "logistic":
        return (y > 0) * 1.0
    return np.round(np.exp(np.clip(y, -2, 2))) if loss == "poisson" else y


@pytest.mark.parametrize("name", SETTINGS)
def test_a_certificate_is_proved_saved_and_verified(name, tmp_path):
    X, y = data()
    setting, weight = SETTINGS[name], np.random.default_rng(1).random(60)
    y = target_for(setting, y)
    found = trimreg.certify(X, y, sample_weight=weight, **setting)
    assert found.proved
    assert found.lower <= found.upper
    assert found.gap <= 1e-3
    assert found.best.objective == pytest.approx(found.upper, rel=1e-12)
    file = found.save(tmp_path / "proof.npz")
    for one in (file, found):
        check = verify_certificate(one, X, y, weight)
        assert check.holds, check.message
        assert check.lower == pytest.approx(found.lower, rel=1e-9)
    assert not verify_certificate(file, X[::-1], y, weight).holds


def test_the_best_point_is_that_of_enumeration():
    X, y = hard_data()
    found = trimreg.certify(X, y, h=3, l2=0.05, gap=1e-6)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    centered = y - y.mean()

    def value(support):
        A = Z[:, support]
        theta = np.linalg.solve(A.T @ A / 40 + 0.05 * np.eye(3), A.T @ centered / 40)
        return 0.5 * np.mean((centered - A @ theta) ** 2) + 0.025 * theta @ theta

    best = min(combinations(range(14), 3), key=value)
    assert np.flatnonzero(found.best.coef).tolist() == list(best)
    assert found.upper == pytest.approx(value(best), rel=1e-9)


def test_a_bad_start_is_left_behind():
    X, y = hard_data()
    start = np.zeros(14)
    start[[11, 12, 13]] = 0.1
    found = trimreg.certify(X, y, h=3, l2=0.05, start=start)
    assert found.proved
    assert found.upper == pytest.approx(trimreg.certify(X, y, h=3, l2=0.05).upper, rel=1e-9)


def test_a_model_takes_a_better_point():
    X, y = hard_data()
    model = TrimmedLasso(h=3, l2=0.05).fit(X, y)
    best = model.objective_
    model.result_.coef[:] = 0.0
    model.coef_ = np.zeros(14)
    model.coef_[[11, 12, 13]] = 0.1
    found = model.certify(X, y, refit=True)
    assert found.upper == pytest.approx(best, rel=1e-9)
    assert model.certify(X, y).improved is False


@pytest.mark.parametrize(
    "model",
    [
        TrimmedLogisticRegression(h=2, l2=0.05),
        TrimmedGroupLasso(h=2, groups=[0, 0, 1, 1, 2, 2, 3, 3, 4, 4]),
        trimreg.TrimmedLassoCV(hs=[1, 3], cv=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_estimators_certify_their_fits(model):
    X, y = data()
    if isinstance(model, TrimmedLogisticRegression):
        y = np.where(y > 0, "yes", "no")
    found = model.fit(X, y).certify(X, y)
    assert found.proved
    assert found.upper == pytest.approx(model.objective_, rel=1e-9)
    assert verify_certificate(found, X, y).holds


def test_sparse_columns():
    X, y = data()
    X[np.abs(X) < 0.8] = 0.0
    dense, sparse = trimreg.certify(X, y, h=3), trimreg.certify(sp.csr_matrix(X), y, h=3)
    assert sparse.lower == pytest.approx(dense.lower, rel=1e-9)
    assert verify_certificate(sparse, sp.csr_matrix(X), y).holds


# -- the end of a search --------------------------------------------------------------------------------


def test_a_search_without_time_gives_the_bounds_reached():
    X, y = hard_data()
    found = trimreg.certify(X, y, h=4, time_limit=0, gap=1e-9)
    assert not found.proved
    assert -np.inf < found.lower < found.upper
    assert verify_certificate(found, X, y).holds
    assert set(found.history) == {"seconds", "lower", "upper", "nodes"}
    assert np.all(np.diff(found.history["lower"]) >= 0)
    assert np.all(np.diff(found.history["upper"]) <= 0)


def test_a_full_tree_goes_on_depth_first():
    X, y = hard_data()
    best_first = trimreg.certify(X, y, h=4, l2=0.01, gap=1e-5)
    depth_first = trimreg.certify(X, y, h=4, l2=0.01, gap=1e-5, max_nodes=2)
    assert best_first.nodes > 5
    assert depth_first.proved
    assert depth_first.upper == pytest.approx(best_first.upper, rel=1e-9)
    assert verify_certificate(depth_first, X, y).holds


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_ends_with_bounds(monkeypatch, n_jobs):
    X, y = hard_data()
    branch, calls = tree.Search._branch, []

    def interrupted(self, node):
        calls.append(node)
        if len(calls) == 3:
            raise KeyboardInterrupt
        branch(self, node)

    monkeypatch.setattr(tree.Search, "_branch", interrupted)
    found = trimreg.certify(X, y, h=4, l2=0.01, gap=1e-6, n_jobs=n_jobs)
    assert "interrupted" in found.message
    assert not found.proved
    assert verify_certificate(found, X, y).holds


@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
def test_threads_prove_the_same(loss):
    X, y = hard_data()
    y = y if loss == "quadratic" else (y > 0) * 1.0
    setting = {"h": 4, "l2": 0.05, "loss": loss, "gap": 1e-5}
    one, two = (trimreg.certify(X, y, n_jobs=n_jobs, **setting) for n_jobs in (1, 2))
    again = trimreg.certify(X, y, n_jobs=1, **setting)
    assert one.nodes > 10
    assert (again.lower, again.upper, again.nodes) == (one.lower, one.upper, one.nodes)
    assert two.proved
    assert two.upper == pytest.approx(one.upper, rel=1e-9)
    assert verify_certificate(two, X, y).holds


def test_one_sample_is_certified_without_a_warning():
    assert trimreg.certify([[1.0, 2.0, 3.0]], [1.0], h=1).proved  # warnings are errors here


def test_counts_too_large_for_a_bound_end_without_one():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 4)), np.round(1e10 * rng.random(20))
    found = trimreg.certify(X, y, h=2, loss="poisson", l2=0.01, time_limit=1)
    assert found.lower <= found.upper
    assert not found.proved


def test_the_children_of_a_node_are_compared_without_samples(monkeypatch):
    """A node values few dual points, not several for each child that is tried."""
    X, y = hard_data()
    calls, dual = [], GeneralRelaxation._dual
    monkeypatch.setattr(GeneralRelaxation, "_dual", lambda *one: calls.append(1) or dual(*one))
    found = trimreg.certify(X, (y > 0) * 1.0, h=4, l2=0.02, loss="logistic", gap=1e-4)
    assert found.nodes > 20
    assert len(calls) < 9 * found.nodes


# -- near the best --------------------------------------------------------------------------------------


def test_near_best_lists_what_enumeration_lists():
    X, y = hard_data()
    found = trimreg.near_best(X, y, h=2, within=0.05)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    centered = y - y.mean()
    values = {}
    for support in combinations(range(14), 2):
        left = centered - Z[:, support] @ np.linalg.lstsq(Z[:, support], centered, rcond=None)[0]
        values[support] = 0.5 * np.mean(left**2)
    limit = 1.05 * min(values.values())
    expected = sorted((value, support) for support, value in values.items() if value <= limit)
    assert found.complete
    assert len(expected) > 2
    assert [tuple(support) for support in found.supports] == [support for _, support in expected]
    assert found.objectives == pytest.approx([value for value, _ in expected])
    assert found.in_all.tolist() == sorted(set.intersection(*(set(support) for _, support in expected)))
    assert len(found.to_frame()) == len(expected)


def test_near_best_without_time_says_what_may_be_missing():
    X, y = hard_data()
    found = trimreg.near_best(X, y, h=4, within=0.2, time_limit=0)
    assert not found.complete
    assert found.lower < found.limit
    assert "others have at least" in repr(found)


# -- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"time_limit": -1.0}, "time_limit must be"),
        ({"time_limit": np.nan}, "time_limit must be"),
        ({"gap": -1e-3}, "gap must be"),
        ({"time_limit": "long"}, "time_limit must be"),
        ({"max_nodes": 0}, "max_nodes must be"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"n_jobs": 1.5}, "n_jobs must be"),
        ({"start": np.ones(10)}, "start must have at most h = 2"),
        ({"start": np.ones(3)}, "start must"),
        ({"loss": "logistic"}, "l2 must be > 0"),
        ({"loss": "cox"}, "y must|cannot be certified"),
        ({"loss": Huber(), "l2": 0.1}, "loss 'huber' cannot be certified"),
        ({"loss": "gamma", "l2": 0.1}, "loss 'gamma' cannot be certified"),
        ({"h": 20}, "h must be"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bad_input_names_its_argument(arguments, message):
    X, y = data()
    y = (y > 0) + 0.5 if arguments.get("loss") == "gamma" else (y > 0) * 1.0
    with pytest.raises(ValueError, match=message):
        trimreg.certify(X, y, **{"h": 2, **arguments})


def test_fits_that_cannot_be_certified_say_why():
    X, y = data()
    with pytest.raises(ValueError, match="positive, lower and upper must be left off"):
        TrimmedLasso(h=2, positive=True).fit(X, y).certify(X, y)
    with pytest.raises(ValueError, match="n_outliers must be 0"):
        TrimmedLasso(h=2, n_outliers=3).fit(X, y).certify(X, y)
    with pytest.raises(ValueError, match="penalty must be trimmed"):
        trimreg.MEstimator(penalty="l1", alpha=0.1).fit(X, y).certify(X, y)


# -- certificates that do not hold ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proof(tmp_path_factory):
    X, y = hard_data()
    found = trimreg.certify(X, y, h=4, l2=0.01, gap=1e-4)
    return X, y, found.save(tmp_path_factory.mktemp("proof") / "proof.npz")


def rewritten(file, tmp_path, **changes):
    """A copy of a certificate with other arrays, or another header."""
    with np.load(file) as old:
        content = {name: old[name] for name in old.files}
    header = json.loads(bytes(content["header"]).decode()) | changes.pop("header", {})
    content["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    for name, change in changes.items():
        content[name] = change(content[name].copy())
    np.savez(tmp_path / "other.npz", **content)
    return tmp_path / "other.npz"


def negated(values):
    return -values


def cut(values):
    return values[:-1]


@pytest.mark.parametrize(
    "changes",
    [
        {"header": {"lower": 1e9}},
        {"header": {"upper": 1e-9}},
        {"coef": negated},
        {"value": negated},
        {"value": lambda values: 1.5 * values},
        {"tau": lambda tau: 10.0 * tau},
        {"branch": lambda branch: np.where(branch >= 0, (branch + 1) % 14, branch)},
        {"made_free": negated},
        {"made_not_free": lambda parts: (parts + 1) % 14},
        {"parent": lambda parent: np.where(parent > 2, 2, parent)},
        {"side": negated},
        {"kept": lambda parts: (parts + 1) % 14},
        {"index": lambda index: index[::-1]},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_a_certificate_that_was_changed_does_not_hold(proof, tmp_path, changes):
    X, y, file = proof
    assert verify_certificate(file, X, y).holds
    other = rewritten(file, tmp_path, **changes)
    assert not holds(other, X, y)


def holds(file, X, y):
    """Whether a certificate holds; one that is damaged does not."""
    try:
        return verify_certificate(file, X, y).holds
    except ValueError:
        return False


def test_files_that_are_no_certificates(proof, tmp_path):
    X, y, file = proof
    (tmp_path / "short.npz").write_bytes(file.read_bytes()[:-200])
    (tmp_path / "text.npz").write_text("no certificate")
    np.savez(tmp_path / "arrays.npz", a=np.zeros(2))
    for name in ("short", "text", "arrays"):
        with pytest.raises(ValueError, match="certificate of trimreg"):
            verify_certificate(tmp_path / f"{name}.npz", X, y)
    with pytest.raises(ValueError, match="X must have the shape"):
        verify_certificate(file, X[:, 1:], y)
    with pytest.raises(ValueError, match="damaged"):
        verify_certificate(rewritten(file, tmp_path, branch=cut), X, y)
    with pytest.raises(FileNotFoundError):
        verify_certificate(tmp_path / "none.npz", X, y)
