"""Ensembles of Bayesian and of gated layers: the noise of each replica is its own."""

from __future__ import annotations

from torch import Tensor

from trimreg.nn.layers.bayes import BayesConv2d, Bayesian, BayesLinear
from trimreg.nn.layers.gates import GatedChannels, GatedInputs, L0Conv2d, L0Linear

from .ensemble import EnsembleConv2d, EnsembleLinear, affine


class _EnsembleBayesian(Bayesian):
    replica_axes = 1

    def _answer(self, rows: Tensor) -> Tensor:
        mean = super()._answer(rows)
        if not self.training:
            return mean
        return self._noisy(mean, rows, self._variance_response)

    def _variance_response(self, squares: Tensor, variance: Tensor) -> Tensor:
        return affine(squares, self.as_matrix(variance), None)


class EnsembleBayesLinear(_EnsembleBayesian, EnsembleLinear):
    """E layers :class:`~trimreg.nn.layers.bayes.BayesLinear`; takes ``initial_log_alpha`` besides.

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.training.ensemble_stochastic import EnsembleBayesLinear
    >>> layer = EnsembleBayesLinear(3, 5, 2, seeds=[0, 1, 2], initial_log_alpha=-5.0)
    >>> layer(torch.ones(7, 5)).shape, layer.kl().shape, layer.replica(0)
    (torch.Size([3, 7, 2]), torch.Size([3]), BayesLinear(in_features=5, out_features=2, bias=True))
    """

    single = BayesLinear


class EnsembleBayesConv2d(_EnsembleBayesian, EnsembleConv2d):
    """E layers :class:`~trimreg.nn.layers.bayes.BayesConv2d`; takes ``initial_log_alpha`` besides.

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.training.ensemble_stochastic import EnsembleBayesConv2d
    >>> EnsembleBayesConv2d(2, 1, 4, 3, seeds=[0, 1])(torch.ones(2, 5, 1, 8, 8)).shape
    torch.Size([2, 5, 4, 6, 6])
    """

    single = BayesConv2d


class EnsembleL0Linear(GatedInputs, EnsembleLinear):
    """E layers :class:`~trimreg.nn.layers.gates.L0Linear`; takes ``droprate`` besides.

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.training.ensemble_stochastic import EnsembleL0Linear
    >>> layer = EnsembleL0Linear(3, 5, 2, seeds=[0, 1, 2], droprate=0.2)
    >>> layer(torch.ones(7, 5)).shape, layer.expected_size().shape, layer.gates().shape
    (torch.Size([3, 7, 2]), torch.Size([3]), torch.Size([3, 5]))
    """

    single = L0Linear

    def _answer(self, rows: Tensor) -> Tensor:
        return affine(rows, self.gated_weight(), self.bias)


class EnsembleL0Conv2d(GatedChannels, EnsembleConv2d):
    """E layers :class:`~trimreg.nn.layers.gates.L0Conv2d`; takes ``droprate`` besides.

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.training.ensemble_stochastic import EnsembleL0Conv2d
    >>> layer = EnsembleL0Conv2d(2, 1, 4, 3, seeds=[0, 1], droprate=0.5)
    >>> layer(torch.ones(5, 1, 8, 8)).shape, layer.gates().shape
    (torch.Size([2, 5, 4, 6, 6]), torch.Size([2, 4]))
    """

    single = L0Conv2d

    def _answer(self, rows: Tensor) -> Tensor:
        gates = self.current_gates()
        bias = None if self.bias is None else gates * self.bias
        return affine(rows, gates.unsqueeze(-1) * self.as_matrix(self.weight), bias)
