"""Ensembles of Bayesian and of gated layers; each replica has its own noise."""

from __future__ import annotations

from torch import Tensor

from trimreg.nn.layers.bayes import BayesConv2d, Bayesian, BayesLinear
from trimreg.nn.layers.gates import GatedChannels, GatedInputs, L0Conv2d, L0Linear

from .ensemble import EnsembleConv2d, EnsembleLinear, affine


class _EnsembleBayesian(Bayesian):
    replica_axes = 1
    training: bool

    def _answer(self, rows: Tensor) -> Tensor:
        mean = super()._answer(rows)  # type: ignore[misc]  # of the layer that this class is mixed into
        if not self.training:
            return mean
        return self._noisy(mean, rows, self._variance_response)

    def _variance_response(self, squares: Tensor, variance: Tensor) -> Tensor:
        return affine(squares, self.as_matrix(variance), None)  # type: ignore[attr-defined]


class EnsembleBayesLinear(_EnsembleBayesian, EnsembleLinear):
    """E layers :class:`~trimreg.nn.layers.bayes.BayesLinear`; also takes ``initial_log_alpha``."""

    single = BayesLinear


class EnsembleBayesConv2d(_EnsembleBayesian, EnsembleConv2d):
    """E layers :class:`~trimreg.nn.layers.bayes.BayesConv2d`; also takes ``initial_log_alpha``."""

    single = BayesConv2d


class EnsembleL0Linear(GatedInputs, EnsembleLinear):
    """E layers :class:`~trimreg.nn.layers.gates.L0Linear`; also takes ``droprate``."""

    single = L0Linear

    def _answer(self, rows: Tensor) -> Tensor:
        return affine(rows, self.gated_weight(), self.bias)


class EnsembleL0Conv2d(GatedChannels, EnsembleConv2d):
    """E layers :class:`~trimreg.nn.layers.gates.L0Conv2d`; also takes ``droprate``."""

    single = L0Conv2d

    def _answer(self, rows: Tensor) -> Tensor:
        gates = self.current_gates()
        bias = None if self.bias is None else gates * self.bias
        return affine(rows, gates.unsqueeze(-1) * self.as_matrix(self.weight), bias)
