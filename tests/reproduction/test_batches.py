"""First-order methods in batches, on a device of PyTorch: the rows of the compiled loops."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from trimreg.datasets import make_paper_design  # noqa: E402
from trimreg.solvers.first_order.batch import Terms  # noqa: E402
from trimreg_reproduction.linear import gramkernels as kernels  # noqa: E402
from trimreg_reproduction.linear import methods, recovery  # noqa: E402
from trimreg_reproduction.linear.batches import first_order_many, first_order_paths, shrink  # noqa: E402
from trimreg_reproduction.linear.methods import GramProblem  # noqa: E402
from trimreg_reproduction.spec import BadInput, Cell  # noqa: E402

CPU = torch.device("cpu")
P, K = 24, 4


@pytest.fixture(scope="module")
def problems():
    draws = [make_paper_design(40, P, K, random_state=seed) for seed in range(3)]
    return [GramProblem.of(data.X, data.y) for data in draws]


@pytest.mark.parametrize("kind", [kernels.MCP, kernels.SCAD])
@pytest.mark.parametrize("eta", [0.1, 0.7, 1.4])
def test_the_proximal_step_is_the_compiled_one(kind, eta):
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.standard_normal(200) * 4, [0.0, -0.0, 0.5, -0.5, 1.25, 30.0]])[None]
    alpha, parameter = 0.5, 2.5
    terms = Terms(np.array([[alpha]]), None, np.array([[eta]]), None, None)
    found = shrink(z, terms, None, kind=kind, parameter=parameter)
    each = [kernels.proximal_point(abs(x), alpha, eta, kind, parameter) for x in z[0]]
    np.testing.assert_allclose(found[0], np.where(z[0] > 0, each, -np.array(each)), atol=1e-14)
    assert len(np.unique(found != 0)) == 2


@pytest.mark.parametrize("method", methods.KINDS)
def test_paths_are_those_of_the_compiled_loop(problems, method):
    alphas, tol = [0.02, 0.1, 0.5, 2.0], 1e-6
    found = first_order_paths(problems, method, alphas, K, 2000, tol, CPU)
    for problem, path in zip(problems, found, strict=True):
        expected = methods.first_order_path(problem, method, alphas, K, 2000, tol)
        np.testing.assert_allclose(path, expected, atol=1e-9)
        np.testing.assert_array_equal(path != 0, expected != 0)


def test_marks_and_steps_are_those_of_the_compiled_loop(problems):
    problem, rng = problems[0], np.random.default_rng(1)
    starts, truth = 5.0 * rng.standard_normal((4, P)), rng.standard_normal(P)
    marks = np.array([0, 1, 2, 13, *range(100, 3001, 100)])
    goal, most = 1e-4 * problem.scale, 3000
    theta, taken, seen = first_order_many(
        problem.gram, np.tile(problem.c, (4, 1)), starts, 0.3, kernels.TRIMMED, K, problem.step, goal, most,
        CPU, marks,
    )  # fmt: skip
    for b, start in enumerate(starts):
        expected, distances = start.copy(), np.empty(marks.size)
        count = kernels.first_order(
            problem.gram, problem.c, expected, 0.3, kernels.TRIMMED, float(K), problem.step, goal, most,
            truth, marks, distances,
        )  # fmt: skip
        np.testing.assert_allclose(theta[b], expected, atol=1e-10)
        assert taken[b] == count
        np.testing.assert_allclose([np.linalg.norm(one[b] - truth) for one in seen], distances, atol=1e-10)
    assert (taken < most).any()


def same_rows(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for key in one:
            if isinstance(one[key], (float, list)):
                np.testing.assert_allclose(one[key], other[key], rtol=1e-6, atol=1e-6)
            else:
                assert one[key] == other[key], key


def cells_of(panel, count=3, **more):
    return [Cell.of("fig2", panel=panel, p=P, k=K, n=40, **more, replicate=r) for r in range(count)]


def test_starts_together_are_the_starts_alone():
    cells = cells_of("starts", steps=300)
    assert len({recovery.together(cell) for cell in cells}) == 1
    for cell, rows in zip(cells, recovery.run_together(cells, "cpu"), strict=True):
        same_rows(rows, recovery.run(cell))


def test_replicates_together_are_the_replicates_alone(monkeypatch):
    cells = cells_of("recovery", 2)
    assert recovery.together(cells[0]) is None  # too small to be solved as the authors do
    monkeypatch.setattr(recovery, "_authors", lambda cell: recovery.AS_AUTHORS)
    monkeypatch.setattr(methods, "_SPARSE", 16)  # the larger alphas, at which few steps do
    assert recovery.together(cells[0]) == recovery.together(cells[1])
    for cell, rows in zip(cells, recovery.run_together(cells, "cpu"), strict=True):
        assert any(row["method"].endswith(methods.AUTHORS) for row in rows)
        same_rows(rows, recovery.run(cell))


def test_which_cells_go_together():
    keys = {}
    for cell in recovery.cells("fig3", "full"):
        keys.setdefault(recovery.together(cell), []).append(cell)
    assert sorted(len(cells) for key, cells in keys.items() if key is not None) == [50, 300]
    assert all(
        cell["panel"] == "starts" for key, cells in keys.items() if "starts" in str(key) for cell in cells
    )


def test_a_device_that_is_not_there():
    with pytest.raises(BadInput, match="device must be auto, cpu, cuda"):
        recovery.run_together(cells_of("starts", steps=10), "tpu")
