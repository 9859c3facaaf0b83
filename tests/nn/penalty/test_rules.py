"""The weight rules on tensors: the same answers as those of ``trimreg.penalties``."""

import numpy as np
import pytest
import torch

from trimreg.nn.penalty import rules
from trimreg.nn.penalty.rules import group_factor, kept_largest, mask_by_rank, project
from trimreg.penalties import TrimmedL1, largest, project_capped_simplex, simplex


def magnitudes(seed, rows=6, size=9, dtype=torch.float64):
    """Rows with ties, zeros and scales far apart."""
    generator = torch.Generator().manual_seed(seed)
    r = torch.rand(rows, size, generator=generator, dtype=dtype)
    r[0] = 1.0
    r[1] = 0.0
    r[2] = r[2].mul(3).round()
    r[3, ::2] = 0.0
    r[4] *= 1e-30
    r[5] *= 1e12
    return r


@pytest.mark.parametrize("h", [0, 1, 4, 8, 9])
def test_kept_is_what_numpy_keeps(h):
    penalty = TrimmedL1(h=h).bind(9)
    for seed in range(5):
        r = magnitudes(seed)
        kept = kept_largest(r, h)
        assert kept.dtype == torch.bool
        assert (kept.sum(-1) == h).all()
        for row, mask in zip(r.numpy(), kept.numpy(), strict=True):
            assert np.flatnonzero(mask).tolist() == largest(row, h).tolist()
            np.testing.assert_array_equal(~mask, penalty.weights(row, alpha=1.0))


def test_kept_takes_a_count_for_each_row():
    r = magnitudes(0)
    counts = torch.tensor([[0], [1], [2], [5], [8], [9]])
    kept = kept_largest(r, counts)
    for row, (mask, h) in enumerate(zip(kept, counts, strict=True)):
        assert torch.equal(mask, kept_largest(r[row], int(h)))
    batched = kept_largest(r.reshape(2, 3, 9), counts.reshape(2, 3, 1))
    assert torch.equal(batched.reshape(6, 9), kept)


def test_ties_go_to_the_lower_index_in_long_rows():
    r = torch.ones(2, 5000)
    kept = kept_largest(r, 1234)
    assert kept[:, :1234].all()
    assert not kept[:, 1234:].any()


def test_marks_are_placed_by_rank():
    marks = torch.tensor([False, True, False, True])
    assert mask_by_rank(torch.tensor([4.0, 1.0, 3.0, 2.0]), marks).tolist() == [False, True, True, False]


# -- the projection -----------------------------------------------------------------------------------------


@pytest.fixture(params=["cpu", "device"])
def way(request, monkeypatch):
    """The projection as on a CPU, and as on a device, where no value may be looked at."""
    if request.param == "device":
        monkeypatch.setattr(rules, "on_host", lambda y: False)
        monkeypatch.setattr(simplex, "_may_look", lambda y: False)
        monkeypatch.setattr(simplex, "newton_shift", None)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_projection_is_that_of_one_row(scale):
    y = scale * torch.randn(8, 17, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    y[0] = 0.25
    y[1] = y[1].round()
    y[2, :9] = y[2, 0]
    for total in (0, 1, 5.5, 16, 17):
        w = project(y, total)
        expected = np.array([project_capped_simplex(row, total) for row in y.numpy()])
        np.testing.assert_allclose(w.numpy(), expected, atol=1e-12)
        np.testing.assert_array_equal(w.numpy() == 0, expected == 0)
        np.testing.assert_array_equal(w.numpy() == 1, expected == 1)


@pytest.mark.usefixtures("way")
def test_projection_with_a_total_for_each_row_and_padding():
    generator = torch.Generator().manual_seed(3)
    y = torch.randn(5, 12, generator=generator, dtype=torch.float64)
    sizes, totals = [12, 7, 7, 3, 1], [4, 0, 7, 2, 1]
    valid = torch.arange(12) < torch.tensor(sizes)[:, None]
    y[~valid] = 1e6  # must not matter
    w = project(y, torch.tensor(totals, dtype=torch.float64)[:, None], valid)
    assert (w[~valid] == 0).all()
    for row, (size, total) in enumerate(zip(sizes, totals, strict=True)):
        expected = project_capped_simplex(y[row, :size].numpy(), total)
        np.testing.assert_allclose(w[row, :size].numpy(), expected, atol=1e-12)


@pytest.mark.usefixtures("way")
def test_projection_in_float32_sums_to_the_total():
    generator = torch.Generator().manual_seed(4)
    y = torch.rand(4, 4000, generator=generator)
    totals = torch.tensor([[1.0], [100.0], [2000.0], [3999.0]])
    w = project(y, totals)
    assert w.dtype == torch.float32
    np.testing.assert_allclose(w.double().sum(-1), totals[:, 0], rtol=2e-4)
    for row, total in enumerate(totals):
        expected = project_capped_simplex(y[row].double().numpy(), float(total))
        np.testing.assert_allclose(w[row], expected, atol=2e-6)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("scale", [1e-30, 1e3, 1e6, 1e12])
def test_projection_has_its_total_at_every_scale(scale):
    y = -torch.rand(10, generator=torch.Generator().manual_seed(1)) * scale
    w = project(y, 6.0)
    assert float(w.sum()) == pytest.approx(6.0, rel=1e-6)
    if scale >= 1e3:  # then the six largest are far apart from the rest
        assert torch.equal(w, kept_largest(y, 6).float())


def test_host_and_device_agree_along_the_steps_of_w(monkeypatch):
    """In padded rows of many replicas, with totals that fall as those of an h_schedule do."""
    generator = torch.Generator().manual_seed(6)
    sizes = torch.randint(5, 200, (40, 1), generator=generator)
    valid = torch.arange(200) < sizes
    r = 5 * torch.rand(40, 200, generator=generator, dtype=torch.float64)
    w = torch.zeros_like(r)
    for step in range(60):
        y, total = w - 0.1 * r, (sizes * (1 - min(step, 40) / 50)).round()
        w = project(y, total, valid)
        torch.testing.assert_close(w.float(), project(y.float(), total, valid), rtol=0, atol=2e-6)
        monkeypatch.setattr(rules, "on_host", lambda y: False)
        monkeypatch.setattr(simplex, "_may_look", lambda y: False)
        torch.testing.assert_close(w, project(y, total, valid), rtol=0, atol=1e-13)
        torch.testing.assert_close(w.float(), project(y.float(), total, valid), rtol=0, atol=2e-6)
        monkeypatch.undo()
        assert (w.sum(-1, keepdim=True) - total).abs().max() < 1e-12 * 200


def test_a_projection_on_a_cpu_does_not_sort(monkeypatch):
    """A feasible point less a small step, as in training: a sort would take several times as long."""
    monkeypatch.setattr(simplex, "sorted_shift", None)
    w = (torch.arange(300) < 100).float().expand(4, 300)
    r = torch.rand(4, 300, generator=torch.Generator().manual_seed(7))
    for _ in range(50):
        w = project(w - 0.01 * r, 100)
    assert w.sum(-1).tolist() == pytest.approx([100.0] * 4, rel=1e-5)


# -- the threshold ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.0, 0.3, 1e20, float("inf")])
def test_factor_is_group_soft_thresholding(threshold):
    r = torch.tensor([0.0, 1e-40, 0.1, 0.3, 0.9, 1e25], dtype=torch.float64)
    factor = group_factor(r, threshold)
    assert torch.isfinite(factor).all()
    expected = [max(float(x) - threshold, 0.0) / float(x) if x > 0 else 0.0 for x in r]
    np.testing.assert_allclose(factor, expected, rtol=1e-14)
    assert group_factor(r.float(), threshold).dtype == torch.float32


def test_factor_times_group_is_the_prox_of_the_penalty():
    generator = torch.Generator().manual_seed(5)
    theta = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    penalty = TrimmedL1(h=2, groups=np.repeat(np.arange(6), 4)).bind(24)
    expected = penalty.prox(theta.flatten().numpy(), alpha=0.7, step=0.9)
    # The estimators' penalty weights a group by the root of its size, 2 here; the network's does not.
    r = theta.norm(dim=1)
    shrunk = theta * torch.where(kept_largest(r, 2), 1.0, group_factor(r, 2 * 0.7 * 0.9))[:, None]
    np.testing.assert_allclose(shrunk.flatten(), expected, atol=1e-14)
