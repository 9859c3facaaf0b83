"""What needs X in memory takes tensors that are there, and gives the answers of arrays."""

import numpy as np
import pytest
from sklearn.linear_model import Lasso

from trimreg import (
    Bootstrap,
    StabilitySelection,
    TrimmedGraphicalLasso,
    TrimmedGraphicalLassoCV,
    TrimmedLasso,
    TrimmedLassoCV,
)

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 6))
Y = X[:, 0] - X[:, 1] + 0.3 * RNG.standard_normal(60)
USES = {
    "outliers": lambda X, y: TrimmedLasso(h=2, n_outliers=3, random_state=0).fit(X, y).coef_,
    "scoring": lambda X, y: TrimmedLassoCV(cv=3, scoring="r2").fit(X, y).coef_,
    "stability": lambda X, y: (
        StabilitySelection(TrimmedLasso(h=2), n_pairs=5, random_state=0).fit(X, y).transform(X)
    ),
    "another's estimator": lambda X, y: (
        Bootstrap(Lasso(0.1), n_replicates=5, random_state=0).fit(X, y).frequencies_
    ),
    "ranks": lambda X, y: TrimmedGraphicalLasso(h=3, kind="spearman").fit(X).precision_,
    "folds": lambda X, y: TrimmedGraphicalLassoCV(hs=[1, 3], cv=3).fit(X).precision_,
    "distances": lambda X, y: TrimmedGraphicalLasso(h=3).fit(X).mahalanobis(X),
}


@pytest.mark.parametrize("use", USES)
def test_a_tensor_in_memory_is_an_array(use):
    tensor = torch.tensor(X, requires_grad=True)
    np.testing.assert_allclose(USES[use](tensor, torch.tensor(Y)), USES[use](X, Y), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("use", ["scoring", "stability", "folds"])
def test_bfloat16_is_read_too(use):
    tensor = torch.tensor(X).bfloat16()
    expected = USES[use](tensor.float().numpy(), Y)
    np.testing.assert_allclose(USES[use](tensor, Y), expected, rtol=1e-4, atol=1e-5)


def test_a_tensor_elsewhere_is_refused():
    for tensor in (torch.tensor(X).to("meta"), torch.tensor(X).to_sparse()):
        with pytest.raises((TypeError, ValueError), match="X"):
            USES["outliers"](tensor, Y)


def test_targets_and_weights_that_are_no_plain_tensors():
    model = TrimmedLasso(h=2)
    coef = model.fit(X, Y, sample_weight=np.arange(60.0)).coef_
    sparse = model.fit(X, torch.tensor(Y).to_sparse(), sample_weight=torch.arange(60.0).to_sparse()).coef_
    np.testing.assert_array_equal(sparse, coef)
    with pytest.raises(ValueError, match=r"shape \(60,\) on the meta device, which holds no numbers"):
        model.fit(X, torch.empty(60, device="meta"))
