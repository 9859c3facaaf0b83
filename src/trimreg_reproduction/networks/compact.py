r"""Networks :math:`y = 1'\sigma(W x)` with sparse W, many fitted at once: the problem of figure 5.

The loss is that of Oymak (2018), half the mean of squares, and :math:`\sigma` is the rectifier:

.. math:: L(W) = \frac{1}{2n} \sum_i \bigl(1'\sigma(W x_i) - y_i\bigr)^2, \qquad
          \nabla L(W) = \frac1n \sum_i \bigl(1'\sigma(W x_i) - y_i\bigr)\, 1[W x_i \ge 0]\, x_i'.

The first axis of every tensor has E independent replicates, and a few batched operations take a step in all
of them. On a GPU a hundred steps are one CUDA graph. Each replicate has the data and the start of its own
seed. Results differ between devices only by rounding, which may however decide at which local minimum a run
from a random start ends.

References
----------
Oymak (2018). Learning compact neural networks with regularization. ICML.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from trimreg.nn import Ramp
from trimreg.nn.penalty.rules import kept_largest, project

from .device import captured

STARTS = ("good", "random")
METHODS = ("l0", "l1", "trimmed", "homotopy")

ETA, ALPHA, TAU = 0.1, 0.01, 0.1  # the paper's step in W, its lambda, and its step in w
HOMOTOPY_ALPHA = 0.05
RISE = (0.2, 0.9)  # homotopy: the fractions of all steps at which h starts to rise from 0, and is reached

BLOCK = 100  # steps in a CUDA graph
LOOK = 500  # steps between two checks for convergence
AT_REST = 1e-6  # change of every entry between two checks at which a run has converged


class Teachers(NamedTuple):
    """E networks to recover: data, true weights and starts.

    Attributes
    ----------
    X : tensor of shape (E, n, p)
    y : tensor of shape (E, n)
    truth, start : tensors of shape (E, z, p)
    """

    X: Tensor
    y: Tensor
    truth: Tensor
    start: Tensor


class Found(NamedTuple):
    """The end of a fit: the weights W, of shape (E, z, p), and the number of steps."""

    W: Tensor
    steps: int


def teachers(
    seeds: Sequence,
    n: int,
    start: str,
    *,
    p: int = 80,
    z: int = 20,
    k: int = 4,
    device: torch.device | str = "cpu",
) -> Teachers:
    r"""The data of the paper's figure 5, one replicate per seed.

    Row i of the true weights has k nonzeros, N(0, p/(kz)), at the inputs ki to k(i + 1) - 1; X is standard
    normal and y has no noise. The start is random, N(0, 1/z), or good: the truth plus such a matrix.

    There are p inputs and z hidden units with k inputs each.
    """
    if start not in STARTS:
        raise ValueError(f"start must be one of {STARTS}; got {start!r}")
    drawn = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        truth = np.zeros((z, p))
        for i in range(z):
            truth[i, k * i : k * (i + 1)] = rng.normal(0.0, np.sqrt(p / (k * z)), k)
        noise = rng.normal(0.0, 1.0 / np.sqrt(z), (z, p))
        X = rng.standard_normal((n, p))
        y = np.maximum(X @ truth.T, 0.0).sum(axis=1)
        drawn.append((X, y, truth, noise + truth if start == "good" else noise))
    return Teachers(
        *(
            torch.tensor(np.array(part), dtype=torch.float32, device=device)
            for part in zip(*drawn, strict=True)
        )
    )


# -- the loss -----------------------------------------------------------------------------------------------


def loss(W: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Half the mean of squares, one number per replicate."""
    return (torch.bmm(X, W.mT).relu().sum(-1) - y).square().mean(-1) / 2


def gradient(W: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """The gradient of :func:`loss`; a hidden unit at 0 counts as on.

    Any slope from 0 to 1 is a subgradient there. With 0, as in PyTorch, a unit whose weights are all 0 would
    have no gradient and stay at 0; with 1 it can return if the others leave a residual.
    """
    hidden = torch.bmm(X, W.mT)
    residual = hidden.relu().sum(-1) - y
    return torch.bmm(((hidden >= 0) * residual.unsqueeze(-1)).mT, X) / X.shape[1]


# -- balls and thresholds -----------------------------------------------------------------------------------


def project_l0(W: Tensor, h: int) -> Tensor:
    """The nearest matrix with at most h nonzeros: the h largest entries of each replicate."""
    return torch.where(kept_largest(W.abs().flatten(1), h).view_as(W), W, 0.0)


def project_l1(W: Tensor, radius: Tensor) -> Tensor:
    r"""The nearest matrix in the l1 ball of that radius, for each replicate.

    Entries are soft-thresholded by the t at which :math:`\sum_j (|W_j| - t)_+` is the radius, or by 0 if W is
    in the ball. With sizes :math:`u_1 \ge u_2 \ge \dots` it is
    :math:`t = (\sum_{j \le m} u_j - radius)/m` for the largest m with :math:`u_m > t`.

    References
    ----------
    Duchi, Shalev-Shwartz, Singer and Chandra (2008). Efficient projections onto the l1-ball for learning in
    high dimensions. ICML.
    """
    sizes = W.abs().flatten(1).sort(-1, descending=True).values
    surplus = sizes.cumsum(-1) - radius.unsqueeze(-1)
    rank = torch.arange(1, sizes.shape[-1] + 1, device=W.device)
    # At radius 0 no rank qualifies; the first one then gives the threshold that sets all entries to 0.
    last = ((sizes * rank > surplus).sum(-1, keepdim=True) - 1).clamp(min=0)
    threshold = (surplus.gather(-1, last) / (last + 1)).clamp(min=0.0)
    return shrink(W, threshold.unsqueeze(-1))


def shrink(W: Tensor, threshold: Tensor) -> Tensor:
    r"""Soft-thresholding, :math:`\mathrm{sign}(W)(|W| - t)_+`: W less its projection on [-t, t]."""
    return W - W.clamp(-threshold, threshold)


# -- one step of each method --------------------------------------------------------------------------------


def trimmed_step(
    W: Tensor, w: Tensor, X: Tensor, y: Tensor, h: int, *, alpha: float = ALPHA, tau: float = TAU,
    eta: float = ETA,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    r"""A step of the paper's Algorithm 1, first in w and then in W; returns W and w.

    .. math:: w^+ = \mathrm{proj}_{\mathcal S}[w - \tau |W|], \qquad
              W^+ = \mathrm{prox}_{\eta\alpha\langle w^+, |\cdot|\rangle}[W - \eta \nabla L(W)]

    with :math:`\mathcal S = \{0 \le w \le 1,\ 1'w = zp - h\}`.
    """
    size = w.shape[-1]
    # The total is a tensor of the device: a CUDA graph cannot contain the copy of a number.
    w = project(w - tau * W.abs().flatten(1), torch.full_like(w[:, :1], size - h))
    return shrink(W - eta * gradient(W, X, y), eta * alpha * w.view_as(W)), w


def homotopy_step(
    W: Tensor, fraction: Tensor, X: Tensor, y: Tensor, h: int, *, alpha: float = HOMOTOPY_ALPHA,
    eta: float = ETA,
) -> Tensor:  # fmt: skip
    r"""A proximal gradient step for the trimmed penalty on the way from the lasso to h free entries.

    .. math:: V = W - \eta \nabla L(W), \qquad W^+_j = V_j \text{ for the } \mathrm{round}(f h)
              \text{ largest, } \mathrm{sign}(V_j)(|V_j| - \eta\alpha)_+ \text{ for the others}

    at the fraction f of the way. At f = 0 it is the lasso, at f = 1 the trimmed penalty. With h free entries
    from the first step, the entries that are large in a random start would be free at once, and stay free.
    """
    moved = W - eta * gradient(W, X, y)
    w = (~kept_largest(moved.abs().flatten(1), (h * fraction).round())).to(moved.dtype)
    return shrink(moved, eta * alpha * w.view_as(W))


# -- all steps ----------------------------------------------------------------------------------------------


def minimize(problem: Teachers, method: str, steps: int, h: int) -> Found:
    """Fit the networks by one method from their starts.

    It ends after ``steps`` steps, or earlier if no entry of any replicate moved by 1e-6 in 500 steps.

    Parameters
    ----------
    problem : Teachers
    method : {"l0", "l1", "trimmed", "homotopy"}
        Projected gradient on the l0 ball of size h or on the l1 ball of the truth's norm, as Oymak (2018);
        Algorithm 1 of the paper; or :func:`homotopy_step` with a fraction that rises linearly.
    steps, h : int

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.compact import minimize, teachers
    >>> problem = teachers([0], 200, "good", p=8, z=2)
    >>> found = minimize(problem, "homotopy", 2000, 8)
    >>> torch.equal(found.W != 0, problem.truth != 0)
    True
    """
    X, y, truth, start = problem
    W = start.clone()
    w = torch.full_like(W.flatten(1), 1.0 - h / W[0].numel())
    t = torch.zeros((), dtype=torch.int64, device=W.device)
    ramp = Ramp(round(RISE[0] * steps), round(RISE[1] * steps), power=1)
    radius = truth.abs().sum((1, 2))

    def advance():
        if method == "l0":
            W.copy_(project_l0(W - ETA * gradient(W, X, y), h))
        elif method == "l1":
            W.copy_(project_l1(W - ETA * gradient(W, X, y), radius))
        elif method == "trimmed":
            for tensor, value in zip((W, w), trimmed_step(W, w, X, y, h), strict=True):
                tensor.copy_(value)
        else:
            W.copy_(homotopy_step(W, ramp(t), X, y, h))
        t.add_(1)

    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}; got {method!r}")
    block = repeated(advance, BLOCK, (W, w, t))
    moving_until = ramp.end if method == "homotopy" else 0
    done, before = 0, (W.clone(), w.clone())
    while done < steps:
        if steps - done >= BLOCK:
            block()
            done += BLOCK
        else:
            advance()
            done += 1
        if done % LOOK == 0:
            moved = max(float((now - then).abs().max()) for now, then in zip((W, w), before, strict=True))
            if moved <= AT_REST and done - LOOK >= moving_until:
                break
            before = (W.clone(), w.clone())
    return Found(W, done)


def repeated(advance: Callable[[], None], times: int, state: Sequence[Tensor]) -> Callable[[], None]:
    """A function that calls ``advance`` that often; on a GPU it replays a graph of these calls.

    ``advance`` changes the tensors ``state`` in place. They are unchanged when this function returns.
    """
    device = state[0].device

    def block():
        for _ in range(times):
            advance()

    if device.type != "cuda":
        return block
    kept = [tensor.clone() for tensor in state]
    with torch.cuda.device(device):
        graph = captured(block)
    for tensor, value in zip(state, kept, strict=True):
        tensor.copy_(value)

    def replay():
        with torch.cuda.device(device):
            graph.replay()

    return replay


# -- comparison with the truth ----------------------------------------------------------------------------


def match_rows(W: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The rows of W, permuted so that the sum of their cosines with the rows of the truth is largest.

    The hidden units of a network have no order. A row of zeros has cosine 0 with every other row.
    """

    def unit(rows):
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.where(norms > 0, norms, 1.0)

    _, rows = linear_sum_assignment(unit(truth) @ unit(W).T, maximize=True)
    return W[rows]


def f1(found: np.ndarray, truth: np.ndarray) -> float:
    r"""F1 of a mask, :math:`2 |A \cap B| / (|A| + |B|)`; 1 if both are empty."""
    total = int(found.sum()) + int(truth.sum())
    return 2.0 * int((found & truth).sum()) / total if total else 1.0


def largest_mask(W: np.ndarray, h: int) -> np.ndarray:
    """A mask of the h largest nonzeros of W, or of all if there are fewer."""
    mask = np.zeros(W.size, dtype=bool)
    mask[np.argsort(-np.abs(W), axis=None, kind="stable")[:h]] = True
    return mask.reshape(W.shape) & (W != 0)
