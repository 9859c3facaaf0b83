r"""The paper's Algorithm 1 for many problems in one go, on arrays of NumPy or PyTorch (so also on a GPU).

The steps are those of :mod:`trimreg.solvers.first_order.bcd`, and each problem stops where it would stop
alone: a problem that is done stands still while the others go on, and leaves the batch when half of them are
done. The host reads from the device only every few steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...losses.base import namespace
from ..driver import check_cancelled
from .arrays import GramBatch, SampleBatch, to_numpy

#: Steps between two looks at which problems are done.
STEPS_BETWEEN_LOOKS = 10


def take(arrays: Any, keep: Any) -> Any:
    """The same named tuple of arrays for these problems."""
    return type(arrays)(*(array[keep] for array in arrays))


class Terms(NamedTuple):
    """The parameters of the problems: arrays of shape (B, 1).

    ``total`` is the sum of the weights, p - h. A problem is done when its distance is at most ``goal``.
    """

    alpha: Any
    total: Any
    eta: Any
    tau: Any
    goal: Any


class State(NamedTuple):
    """The iterates of a batch. ``done`` and ``n_iter``, the number of steps taken, have shape (B, 1)."""

    theta: Any
    w: Any
    gradient: Any
    done: Any
    n_iter: Any


def soft(z: Any, terms: Terms, w: Any) -> Any:
    """The proximal step of the weighted l1 norm."""
    t = terms.eta * terms.alpha * w
    return z - namespace(z).clip(z, -t, t)


def proof_bound(before: State, theta: Any, w: Any, gradient: Any, terms: Terms) -> Any:
    """``sqrt(|u|^2 + |v|^2) >= sqrt(T)``, as derived in :mod:`trimreg.solvers.first_order.bcd`."""
    xp, p = namespace(theta), w.shape[1]
    u = gradient - before.gradient - (theta - before.theta) / terms.eta
    grown = xp.abs(theta[:, :p]) - xp.abs(before.theta[:, :p])
    v = terms.alpha * (grown - (w - before.w) / terms.tau)
    return xp.sqrt((u * u).sum(-1) + (v * v).sum(-1))[:, None]


def largest_change(before: State, theta: Any, w: Any, gradient: Any, terms: Terms) -> Any:
    """The largest change of a coefficient divided by eta or of a weight times alpha."""
    xp = namespace(theta)
    moved = xp.amax(xp.abs(theta - before.theta), -1)[:, None] / terms.eta
    return xp.maximum(moved, terms.alpha * xp.amax(xp.abs(w - before.w), -1)[:, None])


def one_step(
    state: State, batch: SampleBatch | GramBatch, terms: Terms, *, project: Any, prox: Any = soft,
    distance: Any = proof_bound, max_iter: int = 20_000,
) -> State:  # fmt: skip
    r"""One step of Algorithm 1 for the problems that are not done; the others stand still.

    .. math:: w^{k+1} = \mathrm{proj}_{\mathcal S}\bigl[w^k - \tau\, |\theta^k|\bigr], \qquad
              \theta^{k+1} = \mathrm{prox}_{\eta\lambda \langle w^{k+1}, |\cdot|\rangle}
              \bigl[\theta^k - \eta \nabla L(\theta^k)\bigr]

    Coefficients beyond the weights (an intercept) are not penalized. ``project`` is None if the penalty has
    no weights that move.
    """
    xp, p = namespace(state.theta), state.w.shape[1]
    w = state.w
    if project is not None:
        w = project(w - terms.tau * xp.abs(state.theta[:, :p]), terms.total)
    z = state.theta - terms.eta * state.gradient
    theta = prox(z[:, :p], terms, w)
    if z.shape[1] > p:
        theta = xp.concatenate([theta, z[:, p:]], -1)
    gradient = batch.gradient(theta)
    going = ~state.done & (state.n_iter < max_iter)
    near = distance(state, theta, w, gradient, terms) <= terms.goal
    pairs = (theta, state.theta), (w, state.w), (gradient, state.gradient)
    theta, w, gradient = (xp.where(going, new, old) for new, old in pairs)
    return State(theta, w, gradient, state.done | (going & near), state.n_iter + going)


@dataclass
class BatchOutcome:
    """The solutions of a batch, on its device: arrays with one row per problem."""

    theta: Any
    w: Any
    n_iter: Any
    converged: Any
    interrupted: bool = False


def run_batch(
    batch: SampleBatch | GramBatch, theta: Any, w: Any, terms: Terms, *, project: Any,
    max_iter: int = 20_000, advance: Any = None, **rules: Any,
) -> BatchOutcome:  # fmt: skip
    """Algorithm 1 for all problems, from ``theta`` and ``w``, until each is done or has taken ``max_iter``.

    ``project`` is the projection of rows onto S, and ``rules`` are ``prox`` and ``distance``, as in
    :func:`one_step`. ``advance`` is called with the number of problems that have ended since its last call.
    After Ctrl-C the outcome is ``interrupted``, and ``converged`` is False for the problems still going.
    """
    xp = namespace(theta)
    done, n_iter = xp.zeros_like(theta[:, :1]) > 0, xp.zeros_like(theta[:, :1], dtype=xp.int64)
    state = State(theta, w, batch.gradient(theta), done, n_iter)
    end = BatchOutcome(*(xp.zeros_like(array) for array in (theta, w, n_iter[:, 0], done[:, 0])))
    places, ended = np.arange(theta.shape[0]), 0

    step: Any = partial(one_step, project=project, max_iter=max_iter, **rules)
    try:
        while True:
            check_cancelled()
            for _ in range(STEPS_BETWEEN_LOOKS):
                state = step(state, batch, terms)
            going = to_numpy(~state.done & (state.n_iter < max_iter))[:, 0]
            left = int(going.sum())
            if advance is not None and theta.shape[0] - left > ended:
                advance(theta.shape[0] - left - ended)
            ended = theta.shape[0] - left
            if left == 0:
                break
            if left <= going.size // 2:
                _put(end, places, state)
                keep = np.flatnonzero(going)
                index = _index(keep, theta)
                # All at once, so that an interrupt finds places and state of the same problems.
                left_of = take(state, index), batch.take(index), take(terms, index)
                places, (state, batch, terms) = places[keep], left_of
    except KeyboardInterrupt:
        end.interrupted = True
    _put(end, places, state)
    return end


def _index(places, like):
    """Places as an index for arrays of that kind."""
    return places if isinstance(like, np.ndarray) else namespace(like).as_tensor(places, device=like.device)


def _put(end, places, state):
    index = _index(places, state.theta)
    end.theta[index], end.w[index] = state.theta, state.w
    end.n_iter[index], end.converged[index] = state.n_iter[:, 0], state.done[:, 0]
