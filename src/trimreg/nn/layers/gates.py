r"""The L0 baseline: layers whose groups have random gates that can be exactly 0 and exactly 1.

A gate is a stretched and clipped concrete variable (C. Louizos, M. Welling, D. P. Kingma, "Learning sparse
neural networks through L0 regularization", ICLR 2018):

.. math::

    s = \sigma\big((\log u - \log(1 - u) + a)/\beta\big), \quad u \sim U(0, 1), \qquad
    z = \min(1, \max(0, s(\zeta - \gamma) + \gamma))

with :math:`\beta = 2/3, \gamma = -0.1, \zeta = 1.1` and one learned logit :math:`a` per group. The
probability that a gate is open is smooth in :math:`a`, and its sum over the groups is the expected size of
the layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .common import bounded, plain_layer

TEMPERATURE, LOW, HIGH = 2 / 3, -0.1, 1.1  # beta, gamma, zeta
#: The authors' code keeps the logits within these bounds, so that no gate closes for good.
LOGIT_BOUND = math.log(100.0)
UNIFORM_MARGIN = 1e-6


def hard_concrete(logit: Tensor) -> Tensor:
    """One random gate per logit, differentiable in the logit."""
    noise = torch.logit(torch.rand_like(logit), eps=UNIFORM_MARGIN)
    return stretched(torch.sigmoid((noise + logit) / TEMPERATURE))


def stretched(s: Tensor) -> Tensor:
    r"""Stretches and clips to a gate: :math:`\min(1, \max(0, s(\zeta - \gamma) + \gamma))`."""
    return (s * (HIGH - LOW) + LOW).clamp(0.0, 1.0)


def open_probability(logit: Tensor) -> Tensor:
    r"""Probability that a gate is not 0: :math:`\sigma(a - \beta\log(-\gamma/\zeta))`."""
    return torch.sigmoid(logit - TEMPERATURE * math.log(-LOW / HIGH))


class Gated:
    """Mixin of the gated layers, for a module with ``weight`` and ``gate_logits``, one logit per group."""

    weight: Tensor
    bias: Tensor | None
    training: bool
    _group_entries: Any  # the number of entries of each group
    _group_squares: Any  # and the squared norms of the groups

    def _start_gates(self, count: int, droprate: float) -> None:
        if not 0 < droprate < 1:
            raise ValueError(f"droprate must lie strictly between 0 and 1; got {droprate!r}")
        start = math.log(1 - droprate) - math.log(droprate)
        logits = torch.empty(count, device=self.weight.device, dtype=self.weight.dtype)
        self.gate_logits = nn.Parameter(logits.normal_(start, 0.01))

    def bounded_logits(self) -> Tensor:
        """The logits within their bounds."""
        return bounded(self.gate_logits, -LOGIT_BOUND, LOGIT_BOUND)

    def gates(self) -> Tensor:
        r"""The gates without noise, for evaluation: the stretched and clipped :math:`\sigma(a)`."""
        return stretched(torch.sigmoid(self.bounded_logits()))

    def sampled_gates(self) -> Tensor:
        """A fresh draw of the gates."""
        return hard_concrete(self.bounded_logits())

    def current_gates(self) -> Tensor:
        """In training a draw, the same for the whole batch; in evaluation the gates without noise."""
        return self.sampled_gates() if self.training else self.gates()

    def expected_size(self) -> Tensor:
        """The expected number of open gates; one number per replica."""
        return open_probability(self.bounded_logits()).sum(-1)

    def penalty(self, strength: float | Tensor = 1.0, weight_decay: float = 0.0) -> Tensor:
        r"""The expected L0 and squared L2 norm of the groups; one number per replica.

        .. math:: \sum_g P(z_g \ne 0)\,\big(\lambda m_g + \tfrac\rho2 \|\theta_g\|^2\big)

        with strength :math:`\lambda`, weight decay :math:`\rho` and :math:`m_g` entries in group g. The scale
        is that of a sum over samples; :func:`l0_loss` divides by their number. In an ensemble the strength
        may be a tensor with one number per replica.
        """
        if isinstance(strength, Tensor) and strength.ndim:
            strength = strength.unsqueeze(-1)
        cost = strength * self._group_entries()
        if weight_decay:
            cost = cost + 0.5 * weight_decay * self._group_squares()
        return (open_probability(self.bounded_logits()) * cost).sum(-1)


class GatedInputs(Gated):
    """One gate per input unit of ``weight`` (..., out, in). The bias has no gate."""

    def gated_weight(self) -> Tensor:
        """The weight times the current gates."""
        return self.weight * self.current_gates().unsqueeze(-2)

    def _group_entries(self) -> int:
        return self.weight.shape[-2]

    def _group_squares(self) -> Tensor:
        return self.weight.square().sum(-2)


class GatedChannels(Gated):
    """One gate per output channel of ``weight`` (..., out, in, height, width) and its bias."""

    def _group_entries(self) -> int:
        return math.prod(self.weight.shape[-3:]) + (self.bias is not None)

    def _group_squares(self) -> Tensor:
        squares = self.weight.square().flatten(-3).sum(-1)
        return squares if self.bias is None else squares + self.bias.square()


class L0Linear(GatedInputs, nn.Linear):
    r"""A linear layer with a hard-concrete gate on each input: :math:`y = W(z \odot x) + b`.

    The arguments are those of ``nn.Linear``, and ``droprate``, the initial probability of a closed gate.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn import L0Linear
    >>> layer = L0Linear(4, 3, droprate=0.5)
    >>> layer(torch.ones(2, 4)).shape, round(layer.expected_size().item(), 1)
    (torch.Size([2, 3]), 3.3)
    >>> with torch.no_grad():
    ...     _ = layer.gate_logits.copy_(torch.tensor([9.0, -9.0, 9.0, -9.0]))
    >>> layer.gates().tolist()
    [1.0, 0.0, 1.0, 0.0]
    """

    def __init__(self, *args: Any, droprate: float = 0.5, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._start_gates(self.in_features, droprate)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.gated_weight(), self.bias)

    def plain(self) -> nn.Linear:
        """A plain layer with the gates of evaluation multiplied in."""
        made = plain_layer(self)
        with torch.no_grad():
            made.weight.mul_(self.gates())
        return made


class L0Conv2d(GatedChannels, nn.Conv2d):
    r"""A convolution with a hard-concrete gate on each output channel: :math:`y_c = z_c (W_c * x + b_c)`.

    The gate includes the bias: a closed gate leaves a channel of zeros, which can be removed.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn import L0Conv2d
    >>> layer = L0Conv2d(1, 4, 3, droprate=0.2)
    >>> layer(torch.ones(2, 1, 8, 8)).shape, layer.gates().shape
    (torch.Size([2, 4, 6, 6]), torch.Size([4]))
    """

    def __init__(self, *args: Any, droprate: float = 0.5, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._start_gates(self.out_channels, droprate)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.current_gates()[:, None, None]

    def plain(self) -> nn.Conv2d:
        """A plain layer with the gates of evaluation multiplied in."""
        made = plain_layer(self)
        with torch.no_grad():
            made.weight.mul_(self.gates()[:, None, None, None])
            if made.bias is not None:
                made.bias.mul_(self.gates())
        return made


# -- whole models ---------------------------------------------------------------------------------------


def gated_layers(model: nn.Module) -> dict[str, Any]:
    """The layers with gates by name; a ValueError if there are none."""
    found = {name: module for name, module in model.named_modules() if isinstance(module, Gated)}
    if not found:
        raise ValueError(f"{type(model).__name__} has no layers with gates (L0Linear, L0Conv2d)")
    return found


def l0_loss(
    model: nn.Module, n: int, strength: float | Tensor | Mapping = 1.0, weight_decay: float = 0.0
) -> Tensor:
    """The penalty of the gates as a term of a mean loss over ``n`` samples: the sum over layers divided by n.

    ``strength`` is one number, or one number per gated layer, by name ("separate lambda").

    Examples
    --------
    >>> from torch import nn
    >>> from trimreg.nn import L0Linear, l0_loss
    >>> model = nn.Sequential(L0Linear(4, 3), nn.ReLU(), L0Linear(3, 2))
    >>> round(l0_loss(model, 100, {"0": 1.0, "2": 0.0}).item(), 1)
    0.1
    """
    if not n > 0:
        raise ValueError(f"n must be the number of training samples; got {n!r}")
    layers = gated_layers(model)
    if not isinstance(strength, Mapping):
        strength = dict.fromkeys(layers, strength)
    if set(strength) != set(layers):
        raise ValueError(f"strength must name the gated layers {sorted(layers)}; got {sorted(strength)}")
    return sum(layer.penalty(strength[name], weight_decay) for name, layer in layers.items()) / n
