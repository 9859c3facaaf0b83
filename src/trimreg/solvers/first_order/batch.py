r"""The paper's Algorithm 1 for many problems in one go, on arrays of NumPy or PyTorch (so also on a GPU).

The steps are those of :mod:`trimreg.solvers.first_order.bcd`, and each problem stops where it would alone:
one that is
done stands still while the others go on, and leaves the batch when half of them are done. The host looks at
the device only every few steps.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial

import numpy as np

from .arrays import namespace, to_numpy

#: Steps between two looks at who is done.
STEPS_BETWEEN_LOOKS = 10


class _Arrays:
    """Arrays with a row for every problem."""

    def take(self, keep):
        return type(self)(*(array[keep] for array in self.arrays()))

    def arrays(self) -> tuple:
        return tuple(getattr(self, one.name) for one in fields(self))


@dataclass(frozen=True)
class Terms(_Arrays):
    """What a problem has beside its data: arrays of shape (B, 1).

    ``total`` is the sum of its weights, p - h. It is done when its distance is at most ``goal``.
    """

    alpha: object
    total: object
    eta: object
    tau: object
    goal: object


@dataclass(frozen=True)
class State(_Arrays):
    """Where a batch stands. ``done`` and ``n_iter``, the steps taken, are of shape (B, 1)."""

    theta: object
    w: object
    gradient: object
    done: object
    n_iter: object


def soft(z, terms: Terms, w):
    """The proximal step of the weighted l1 norm."""
    t = terms.eta * terms.alpha * w
    return z - namespace(z).clip(z, -t, t)


def proof_bound(before: State, theta, w, gradient, terms: Terms):
    """``sqrt(|u|^2 + |v|^2)``, at least ``sqrt(T)``: see the head of
    :mod:`trimreg.solvers.first_order.bcd`."""
    xp, p = namespace(theta), w.shape[1]
    u = gradient - before.gradient - (theta - before.theta) / terms.eta
    grown = xp.abs(theta[:, :p]) - xp.abs(before.theta[:, :p])
    v = terms.alpha * (grown - (w - before.w) / terms.tau)
    return xp.sqrt((u * u).sum(-1) + (v * v).sum(-1))[:, None]


def largest_change(before: State, theta, w, gradient, terms: Terms):
    """The largest change of a coefficient over eta, or of a weight times alpha, whichever is larger."""
    xp = namespace(theta)
    moved = xp.amax(xp.abs(theta - before.theta), -1)[:, None] / terms.eta
    return xp.maximum(moved, terms.alpha * xp.amax(xp.abs(w - before.w), -1)[:, None])


def one_step(state: State, batch, terms: Terms, *, project, prox=soft, distance=proof_bound, max_iter=20_000):
    r"""A step of Algorithm 1 for the problems that are still going; the others stand still.

    .. math:: w^{k+1} = \mathrm{proj}_{\mathcal S}\bigl[w^k - \tau\, |\theta^k|\bigr], \qquad
              \theta^{k+1} = \mathrm{prox}_{\eta\lambda \langle w^{k+1}, |\cdot|\rangle}
              \bigl[\theta^k - \eta \nabla L(\theta^k)\bigr]

    Coefficients beyond the weights (an intercept) are not penalized. ``project`` is None where the penalty
    has no weights to move.
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
    return State(
        xp.where(going, theta, state.theta),
        xp.where(going, w, state.w),
        xp.where(going, gradient, state.gradient),
        state.done | (going & near),
        state.n_iter + going,
    )


@dataclass
class BatchOutcome:
    """The end of a batch: arrays with a row for every problem, where the batch was solved."""

    theta: object
    w: object
    n_iter: object
    converged: object
    interrupted: bool = False


def descend(
    batch, theta, w, terms: Terms, *, project, max_iter=20_000, advance=None, **rules
) -> BatchOutcome:
    """Algorithm 1 for every problem, from ``theta`` and ``w``, until each is done or has taken ``max_iter``.

    Parameters
    ----------
    batch : SampleBatch or GramBatch
    theta : array of shape (B, width)
    w : array of shape (B, p)
        In S.
    terms : Terms
    project : function (y, total) to an array, or None
        The projection of rows on S.
    max_iter : int
    advance : function of a count, optional
        Called with the number of problems that have ended since the last call.
    **rules
        ``prox`` and ``distance``, as in :func:`one_step`.

    Returns
    -------
    BatchOutcome
        After Ctrl-C with what there is: ``interrupted``, and ``converged`` False for those still going.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties.simplex import project_rows
    >>> from trimreg.solvers.first_order.batch import Terms, descend
    >>> from trimreg.solvers.first_order.arrays import GramBatch
    >>> batch = GramBatch(np.eye(3), np.array([[5.0, 2.0, -1.0], [0.0, 1.0, 4.0]]))
    >>> terms = Terms(*np.ones((2, 2, 1)) * [[[1.5]], [[2.0]]], *np.ones((2, 2, 1)), np.full((2, 1), 1e-6))
    >>> descend(batch, np.zeros((2, 3)), np.full((2, 3), 2 / 3), terms, project=project_rows).theta
    array([[5. , 0.5, 0. ],
           [0. , 0. , 4. ]])
    """
    xp = namespace(theta)
    state = State(
        theta, w, batch.gradient(theta), xp.zeros_like(theta[:, :1]) > 0,
        xp.zeros_like(theta[:, :1], dtype=xp.int64),
    )  # fmt: skip
    end = BatchOutcome(
        xp.zeros_like(theta),
        xp.zeros_like(w),
        xp.zeros_like(state.n_iter[:, 0]),
        xp.zeros_like(state.done[:, 0]),
    )
    places, ended = np.arange(theta.shape[0]), 0

    step = partial(one_step, project=project, max_iter=max_iter, **rules)
    try:
        while True:
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
                places, state, batch, terms = (
                    places[keep],
                    state.take(index),
                    batch.take(index),
                    terms.take(index),
                )
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
