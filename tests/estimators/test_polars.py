"""Frames of polars wherever those of pandas go; without polars, a frame with no more than polars has."""

import numpy as np
import pytest

import trimreg
from trimreg import (
    Bootstrap,
    StabilitySelection,
    TrimmedCoxRegressor,
    TrimmedGraphicalLasso,
    TrimmedL1,
    TrimmedLasso,
    TrimmedLassoCV,
    TrimmedLogisticRegression,
    TrimmedOrdinalRegression,
    TrimmedPoissonRegressor,
    solve,
    trimmed_path,
)
from trimreg.reports import write_model_report

N, NAMES = 60, ["a", "b", "c", "d"]
rng = np.random.default_rng(0)
X = rng.standard_normal((N, 4))
y = X[:, 1] + 0.1 * rng.standard_normal(N)
weight, offset = rng.uniform(0.5, 2.0, N), rng.uniform(0.0, 1.0, N)


class Column:
    """A column: what NumPy needs to read it."""

    def __init__(self, values):
        self.values = np.asarray(values)
        self.dtype, self.shape = self.values.dtype, self.values.shape

    def __array__(self, dtype=None, copy=None):
        return self.values.astype(self.dtype if dtype is None else dtype)

    def __len__(self):
        return len(self.values)


class Frame(Column):
    """A frame: names and columns, and no method of pandas. scikit-learn reads the names of polars alone."""

    def __init__(self, columns):
        self.parts = {name: np.asarray(values) for name, values in columns.items()}
        super().__init__(np.column_stack(list(self.parts.values())))
        self.columns, self.dtypes = list(self.parts), [values.dtype for values in self.parts.values()]
        del self.dtype

    def __getitem__(self, name):
        return Column(self.parts[name])

    def __array__(self, dtype=None, copy=None):
        return self.values.astype(self.values.dtype if dtype is None else dtype)


@pytest.fixture(params=["polars", "a frame like it"])
def kinds(request):
    """The classes of a frame and of a column."""
    if request.param == "polars":
        polars = pytest.importorskip("polars")
        return polars.DataFrame, polars.Series
    return Frame, Column


@pytest.fixture
def frame(kinds):
    return kinds[0](dict(zip(NAMES, X.T, strict=True)))


def test_a_fit_and_what_follows(frame, kinds, tmp_path):
    column = kinds[1]
    model = TrimmedLasso(h=2).fit(frame, column(y), sample_weight=column(weight), offset=column(offset))
    plain = TrimmedLasso(h=2).fit(X, y, sample_weight=weight, offset=offset)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-10, atol=1e-14)
    found = model.predict(frame, offset=column(offset))
    np.testing.assert_allclose(found, plain.predict(X, offset=offset), rtol=1e-10)
    assert model.score(frame, column(y)) == pytest.approx(plain.score(X, y))
    if kinds[0] is not Frame:
        assert model.feature_names_in_.tolist() == NAMES
        assert "b" in model.summary().names
        with pytest.raises(ValueError, match="feature names"):
            model.predict(kinds[0](dict(zip("badc", X.T, strict=True))))
        again = trimreg.load(trimreg.save(model, tmp_path / "model.json"))
        np.testing.assert_allclose(again.predict(frame), model.predict(frame), rtol=1e-12)
    page = write_model_report(model, tmp_path / "m.html", X=frame, y=column(y), sample_weight=column(weight))
    assert "TrimmedLasso" in page.read_text()


def test_every_kind_of_target(frame, kinds):
    table, column = kinds
    words = np.where(y > 0, "yes", "no")
    logistic = TrimmedLogisticRegression(h=1, l2=0.1).fit(frame, column(words))
    assert (
        logistic.predict(frame).tolist()
        == TrimmedLogisticRegression(h=1, l2=0.1).fit(X, words).predict(X).tolist()
    )
    counts = np.round(np.exp(y))
    model = TrimmedPoissonRegressor(h=1).fit(frame, column(counts), exposure=column(weight))
    assert model.support_.tolist() == [1]
    pairs = {"time": np.exp(-y), "event": (weight > 1).astype(float)}
    survival = TrimmedCoxRegressor(h=1).fit(frame, table(pairs))
    assert survival.coef_[1] > 0


def test_searches_paths_and_graphs(frame, kinds):
    column = kinds[1]
    search = TrimmedLassoCV(hs=[0, 1], cv=2).fit(frame, column(y), sample_weight=column(weight))
    assert trimmed_path(frame, column(y), hs=[0, 1]).coefs.shape[-1] == 4
    assert solve(frame, column(y), penalty=TrimmedL1(1), alpha="exact", offset=column(offset)).coef[1] > 0.9
    selector = StabilitySelection(TrimmedLasso(h=1), n_pairs=3).fit(frame, column(y))
    assert selector.get_support().tolist() == [False, True, False, False]
    models = [search, selector, Bootstrap(TrimmedLasso(h=1), n_replicates=2).fit(frame, column(y))]
    models.append(TrimmedGraphicalLasso(h=1).fit(frame))
    if kinds[0] is not Frame:
        assert all(model.feature_names_in_.tolist() == NAMES for model in models)


def test_missing_values_are_refused_with_the_name_of_the_column(kinds):
    bad = X.copy()
    bad[3, 2] = np.nan
    frame = kinds[0](dict(zip(NAMES, bad.T, strict=True)))
    model = TrimmedLasso(h=1)
    for call in (
        lambda: model.fit(frame, y),
        lambda: TrimmedLassoCV(hs=[1]).fit(frame, y),
        lambda: trimmed_path(frame, y, hs=[1]),
        lambda: TrimmedGraphicalLasso(h=1).fit(frame),
        lambda: Bootstrap(model, n_replicates=2).fit(frame, y),
        lambda: TrimmedLasso(h=1).fit(kinds[0](dict(zip(NAMES, X.T, strict=True))), y).predict(frame),
    ):
        with pytest.raises(ValueError, match=r"X contains NaN at row 3, column 'c' .*SimpleImputer"):
            call()


def test_what_only_polars_has():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(X, schema=NAMES)
    with pytest.raises(ValueError, match=r"X must be in memory; got a LazyFrame: pass its \.collect\(\)"):
        TrimmedLasso().fit(frame.lazy(), y)
    dated = frame.with_columns(polars.date(2020, 1, 1).alias("c"))
    with pytest.raises(ValueError, match="X must be numeric; got dates in column 'c'"):
        TrimmedLasso().fit(dated, y)
    order = ["low", "mid", "high"]
    levels = np.array(order)[np.digitize(y, [-0.5, 0.5])]
    model = TrimmedOrdinalRegression(h=2, l2=0.1).fit(frame, polars.Series(levels, dtype=polars.Enum(order)))
    assert model.classes_.tolist() == order
