r"""The first-order methods of :mod:`.gramkernels` for many problems at once, on a device of PyTorch.

:func:`first_order_many` takes the steps of :func:`.gramkernels.first_order`, with its stopping rule, through
the library's :func:`~trimreg.solvers.first_order.batch.run_batch`. The results agree up to rounding. On a CPU
the compiled loop is several times as fast, since it skips the zeros of a sparse theta. On a GPU a
step takes as long for one problem as for thousands.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from trimreg.losses.base import namespace
from trimreg.penalties.simplex import project_rows
from trimreg.solvers.first_order.arrays import GramBatch, to_numpy
from trimreg.solvers.first_order.batch import Terms, largest_change, run_batch, soft, take

from . import gramkernels as kernels


def shrink(z, terms, w, *, kind, parameter):
    """The proximal step of MCP or SCAD for each entry, as :func:`.gramkernels.proximal_point`."""
    xp = namespace(z)
    size, eta, alpha = xp.abs(z), terms.eta, terms.alpha
    inside = xp.clip(size - eta * alpha, 0.0, None)
    if kind == kernels.MCP:
        inside = inside / (1.0 - eta / parameter)
    else:
        middle = ((parameter - 1.0) * size - eta * parameter * alpha) / (parameter - 1.0 - eta)
        inside = xp.where(size > alpha * (1.0 + eta), middle, inside)
    found = xp.where(size < parameter * alpha, inside, size)
    return xp.where(z > 0, found, 0.0 - found)


def first_order_many(
    grams, products, starts, alphas, kind, parameter, etas, goals, max_iter, device, marks=()
):
    r"""Proximal gradient, or Algorithm 1 if ``kind = TRIMMED``, for each row of ``starts``.

    Parameters
    ----------
    grams : ndarray of shape (p, p), or list of B of them
    products : ndarray of shape (B, p)
        :math:`c = X'y/n` of each problem.
    starts : ndarray of shape (B, p)
    alphas, etas, goals : ndarray of shape (B,), or a number
    kind, parameter
        As in :func:`.gramkernels.first_order`.
    max_iter : int
    device : torch.device
    marks : sequence of int, optional
        Increasing numbers of steps after which the coefficients are returned.

    Returns
    -------
    theta : ndarray of shape (B, p)
    n_iter : ndarray of shape (B,)
    seen : list of ndarray of shape (B, p)
        The coefficients at the marks; a problem that has ended stays where it is.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg_reproduction.linear.batches import first_order_many
    >>> from trimreg_reproduction.linear.gramkernels import TRIMMED
    >>> from trimreg_reproduction.networks.device import find_device
    >>> c = np.array([[5.0, 2.0, -1.0]])
    >>> first_order_many(np.eye(3), c, 0 * c, 1.5, TRIMMED, 1, 1.0, 1e-6, 100, find_device("cpu"))[0]
    array([[5. , 0.5, 0. ]])
    """
    torch = namespace(device)
    count, p = starts.shape

    def tensor(values):
        return torch.as_tensor(np.array(values, dtype=float), device=device)

    def column(values):
        return tensor(values).reshape(-1, 1).expand(count, 1).contiguous()

    batch = GramBatch(tensor(grams), tensor(products))
    trimmed = kind == kernels.TRIMMED
    total = p - float(parameter) if trimmed else float(p)
    terms = Terms(column(alphas), column(total), column(etas), column(1.0), column(goals))
    rules = {"distance": largest_change, "project": project_rows if trimmed else None}
    rules["prox"] = (
        soft if kind in (kernels.TRIMMED, kernels.L1) else partial(shrink, kind=kind, parameter=parameter)
    )
    theta, w = tensor(starts), column(total / p).expand(count, p).contiguous()
    n_iter, going, taken, seen = np.zeros(count, dtype=np.int64), np.arange(count), 0, []
    for stop in [*marks, max_iter]:
        if going.size and stop > taken:
            index = torch.as_tensor(going, device=device)
            start = batch.take(index), theta[index], w[index], take(terms, index)
            end = run_batch(*start, max_iter=int(stop) - taken, **rules)
            if end.interrupted:
                raise KeyboardInterrupt
            theta[index], w[index] = end.theta, end.w
            n_iter[going] += to_numpy(end.n_iter)
            going, taken = going[~to_numpy(end.converged)], int(stop)
        seen.append(to_numpy(theta))
    return seen[-1], n_iter, seen[:-1]


def first_order_paths(problems, method, alphas, h, max_iter, tol, device) -> list[np.ndarray]:
    """:func:`.methods.first_order_path` for each problem, with all problems and alphas in one batch."""
    from .methods import GAMMAS, KINDS

    repeats = len(alphas)
    c = np.repeat([one.c for one in problems], repeats, axis=0)
    theta, *_ = first_order_many(
        np.repeat([one.gram for one in problems], repeats, axis=0), c, np.zeros_like(c),
        np.tile(alphas, len(problems)), KINDS[method], GAMMAS.get(method, h),
        np.repeat([one.step for one in problems], repeats),
        np.repeat([tol * one.scale for one in problems], repeats), max_iter, device,
    )  # fmt: skip
    return np.split(theta, len(problems))
