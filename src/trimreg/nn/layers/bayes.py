r"""Bayesian layers: every weight has a normal posterior with a spread proportional to its mean.

The posterior of a weight is :math:`N(\phi, \alpha\phi^2)`, where both :math:`\phi` and :math:`\alpha` are
learned. The prior is log-uniform (D. P. Kingma, T. Salimans, M. Welling, "Variational dropout and the local
reparameterization trick", NIPS 2015). The layers are PyTorch's own with one more parameter: ``weight`` is
:math:`\phi`, and ``log_alpha`` has the same shape. A weight with :math:`\phi = 0` is 0 without noise, so a
group whose means are zero is removed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..groups.resolve import name_matches
from .common import bounded, plain_layer
from .noise import divergence, weight_variance

#: Entries of ``log_alpha`` up to which the divergence of several layers is computed together.
MOST_TOGETHER = 2**18


def with_noise(mean: Tensor, variance: Tensor) -> Tensor:
    """A draw of independent normals with these means and variances; exactly the mean if the variance is 0.

    The square root has no finite derivative at 0. So the deviation is ``sqrt(variance + tiny) - sqrt(tiny)``,
    where tiny is the smallest normal number of the type. It is a power of 4, so the deviation is exactly 0 at
    variance 0, and its finite derivative is multiplied by the zero derivative of the variance. In float16
    ``sqrt(tiny)`` is 0.008 and hides smaller deviations: give the variance in float32, also for means in half
    precision.
    """
    tiny = torch.finfo(variance.dtype).tiny
    deviation = (variance + tiny).sqrt() - math.sqrt(tiny)
    return torch.addcmul(mean, deviation.to(mean.dtype), torch.randn_like(mean))


def _at_least_float32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


class Bayesian:
    """Mixin of the Bayesian layers, for a module whose ``weight`` and ``log_alpha`` have the same shape."""

    weight: Tensor
    replica_axes = 0  # number of leading axes of the parameters that index networks trained side by side

    def _start_posterior(self, initial_log_alpha: float) -> None:
        _check_log_alpha(initial_log_alpha)
        self.log_alpha = nn.Parameter(torch.full_like(self.weight, initial_log_alpha, requires_grad=True))

    def bounded_log_alpha(self) -> Tensor:
        """``log_alpha``, at most 0: for alpha above 1 the KL polynomial is not valid."""
        return bounded(self.log_alpha, high=0.0)

    def weight_variance(self) -> Tensor:
        r"""The posterior variance :math:`\alpha\phi^2` of every weight, at least in float32.

        In float16 it would underflow for most weights.
        """
        return weight_variance(_at_least_float32(self.log_alpha), _at_least_float32(self.weight))

    def sampled_weight(self, generator: torch.Generator | None = None) -> Tensor:
        r"""A fresh draw of the weights, :math:`\phi(1 + \sqrt\alpha\,\varepsilon)`, differentiable."""
        if generator is None:
            noise = torch.randn_like(self.weight)
        else:  # randn_like takes no generator
            noise = torch.empty_like(self.weight).normal_(generator=generator)
        return torch.addcmul(self.weight, self.weight, (0.5 * self.bounded_log_alpha()).exp() * noise)

    def kl(self) -> Tensor:
        """The sum of :func:`trimreg.nn.layers.noise.log_uniform_kl` over the entries of each replica.

        It is at least in float32.
        """
        return divergence(_at_least_float32(self.log_alpha), self.replica_axes)

    def kl_entries(self) -> int:
        """The number of entries that :meth:`kl` sums over."""
        return math.prod(self.log_alpha.shape[self.replica_axes :])

    def _noisy(self, mean: Tensor, x: Tensor, response: Callable) -> Tensor:
        """Local reparameterization: ``response(x^2, weight variance)`` is the variance of the output."""
        variance = self.weight_variance()
        half = variance.dtype != self.weight.dtype
        if not half and not _loses_small_numbers(x.device.type):
            return with_noise(mean, response(x.square(), variance))
        # At least in float32, also under autocast: alpha phi^2 x^2 underflows in float16.
        with torch.autocast(x.device.type, enabled=False):
            return with_noise(mean, response(x.to(variance.dtype).square(), variance))


def _loses_small_numbers(device: str) -> bool:
    """Whether autocast would use a type of smaller range than float32; bfloat16 has the same range."""
    return torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) != torch.bfloat16


def _check_log_alpha(start: float) -> None:
    if not (math.isfinite(start) and start <= 0):
        raise ValueError(f"initial_log_alpha must be finite and at most 0; got {start!r}")


class BayesLinear(Bayesian, nn.Linear):
    r"""A linear layer with posterior :math:`N(\phi, \alpha\phi^2)` on its weights.

    In training the output is drawn from its own distribution (local reparameterization)

    .. math:: y_o \sim N\Big(\sum_i \phi_{oi} x_i + b_o,\; \sum_i \alpha_{oi}\phi_{oi}^2 x_i^2\Big)

    with fresh noise for every sample. In evaluation the output is the mean. The bias has no posterior. The
    arguments are those of ``nn.Linear``, and the start of ``log_alpha``.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn import BayesLinear
    >>> layer = BayesLinear(3, 2, initial_log_alpha=-4.0)
    >>> x = torch.ones(5, 3)
    >>> layer(x).shape, bool((layer(x) == layer(x)).any())
    (torch.Size([5, 2]), False)
    >>> torch.equal(layer.eval()(x), layer(x))
    True
    """

    def __init__(self, *args: Any, initial_log_alpha: float = -10.0, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._start_posterior(initial_log_alpha)

    def forward(self, x: Tensor) -> Tensor:
        mean = super().forward(x)
        return self._noisy(mean, x, functional.linear) if self.training else mean

    def plain(self) -> nn.Linear:
        """A plain layer with copies of the posterior means."""
        return plain_layer(self)


class BayesConv2d(Bayesian, nn.Conv2d):
    r"""A convolution with posterior :math:`N(\phi, \alpha\phi^2)` on its weights; see :class:`BayesLinear`.

    The noise is drawn independently for every output pixel, as is usual. The distribution of each pixel is
    exact; the correlation of pixels that share a filter is ignored.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn import BayesConv2d
    >>> BayesConv2d(1, 4, 3, padding=1)(torch.ones(2, 1, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    def __init__(self, *args: Any, initial_log_alpha: float = -10.0, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._start_posterior(initial_log_alpha)

    def forward(self, x: Tensor) -> Tensor:
        mean = super().forward(x)
        convolved = functools.partial(self._conv_forward, bias=None)
        return self._noisy(mean, x, convolved) if self.training else mean

    def plain(self) -> nn.Conv2d:
        """A plain layer with copies of the posterior means."""
        return plain_layer(self)


# -- whole models ---------------------------------------------------------------------------------------


def bayesian_layers(model: nn.Module) -> dict[str, Any]:
    """The Bayesian layers of a model by name; a ValueError if it has none."""
    found = {name: module for name, module in model.named_modules() if isinstance(module, Bayesian)}
    if not found:
        raise ValueError(f"{type(model).__name__} has no Bayesian layers: make some with bayesianize(model)")
    return found


def kl_divergence(model: nn.Module) -> Tensor:
    """The divergence of the posterior from the prior, summed over all weights.

    See :func:`trimreg.nn.layers.noise.log_uniform_kl`.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn import bayesianize, kl_divergence
    >>> model = bayesianize(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)))
    >>> round(kl_divergence(model).item(), 3)  # eight weights, 4.99995 each
    40.0
    """
    layers = bayesian_layers(model).values()
    small: dict[tuple, list[Tensor]] = {}
    total: Any = 0.0
    for layer in layers:
        part = _at_least_float32(layer.log_alpha).flatten(layer.replica_axes)
        if part.numel() > MOST_TOGETHER:
            total = total + divergence(part, layer.replica_axes)
        else:  # summed together: for small layers the number of operations is what costs
            small.setdefault((part.shape[:-1], part.dtype, part.device), []).append(part)
    return total + sum(divergence(torch.cat(parts, -1), parts[0].ndim - 1) for parts in small.values())


def kl_loss(model: nn.Module, n: int, kl: str = "1/N") -> Tensor:
    r"""The divergence as a term of a mean loss over ``n`` samples.

    ``"1/N"``: :math:`KL/n`, for the evidence lower bound per sample. ``"paper"``: the mean over the weights
    of each layer, divided by 3 and summed over layers, as in the code of the authors of the trimmed penalty;
    ``n`` is not used.

    Examples
    --------
    >>> from torch import nn
    >>> from trimreg.nn import bayesianize, kl_loss
    >>> model = bayesianize(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)))
    >>> round(kl_loss(model, n=100).item(), 4), round(kl_loss(model, n=100, kl="paper").item(), 4)
    (0.4, 3.3333)
    """
    if kl == "1/N":
        if not n > 0:
            raise ValueError(f"n must be the number of training samples; got {n!r}")
        return kl_divergence(model) / n
    if kl == "paper":
        return sum(layer.kl() / layer.kl_entries() for layer in bayesian_layers(model).values()) / 3
    raise ValueError(f'kl must be "1/N" or "paper"; got {kl!r}')


_LAZY = {nn.LazyLinear: BayesLinear, nn.LazyConv2d: BayesConv2d}  # matched, and then refused by name
_BAYESIAN = {nn.Linear: BayesLinear, nn.Conv2d: BayesConv2d, **_LAZY}


def bayesianize(
    model: nn.Module, names: str | Iterable[str] | None = None, initial_log_alpha: float = -10.0
) -> nn.Module:
    """Make linear and 2d convolution layers Bayesian, in place; returns the model.

    The layers remain the same objects with the same parameters and get a new one, ``log_alpha``. So shared
    layers and hooks are kept. Build the optimizer afterwards, so that it has the new parameters.

    Parameters
    ----------
    model : nn.Module
    names : None, str or iterable of str
        Names in ``named_modules``, or globs such as ``"features.*"``, as in
        :class:`trimreg.nn.TrimmedGroupL1`. None means all layers that are exactly ``nn.Linear`` or
        ``nn.Conv2d``. It is an error to name something that matches nothing, or a layer that cannot be
        converted. A frozen layer (whose weight has ``requires_grad=False``) stays as it is, and is an error
        if named in full. A layer that shares its weight with another is an error, since the weight would have
        two posteriors. So is a lazy layer that has not run yet.
    initial_log_alpha : float
        Start of ``log_alpha``, at most 0.

    Examples
    --------
    >>> from torch import nn
    >>> from trimreg.nn import bayesianize
    >>> bayesianize(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)), names="2")
    Sequential(
      (0): Linear(in_features=3, out_features=2, bias=True)
      (1): ReLU()
      (2): BayesLinear(in_features=2, out_features=1, bias=True)
    )
    """
    _check_log_alpha(initial_log_alpha)
    modules = dict(model.named_modules())
    if names is None:
        chosen = [name for name, module in modules.items() if type(module) in _BAYESIAN]
        if not chosen:
            raise ValueError(f"{type(model).__name__} has no nn.Linear or nn.Conv2d layer to make Bayesian")
        names = ()
    else:
        names = [names] if isinstance(names, str) else list(names)
        chosen = [name for pattern in names for name in _matching(pattern, modules)]
    convert = [name for name in dict.fromkeys(chosen) if _convertible(name, modules[name], name in names)]
    if chosen and not convert:
        raise ValueError(f"the layers {chosen} are all frozen (requires_grad is False); unfreeze one of them")
    _refuse_shared(convert, modules)
    for name in convert:
        module = modules[name]
        module.__class__ = _BAYESIAN[type(module)]
        module._start_posterior(initial_log_alpha)
    return model


def _convertible(name: str, module: nn.Module, named: bool) -> bool:
    """Whether to convert a layer: not if it is frozen. Raises if it cannot be converted."""
    weight = module._parameters.get("weight")
    if not isinstance(weight, nn.Parameter):
        raise ValueError(f"the weight of layer {name!r} is computed (pruned, normalized?); undo that first")
    if type(module) in _LAZY:
        raise ValueError(f"layer {name!r} is lazy and has no weights yet; run the model on a batch first")
    if named and not weight.requires_grad:
        raise ValueError(f"layer {name!r}: weight is frozen (requires_grad is False); leave the layer out")
    return weight.requires_grad


def _refuse_shared(names: list[str], modules: dict[str, nn.Module]) -> None:
    """Raise if layers share a weight: it would have two spreads, and its divergence would count twice."""
    places: dict[int, list[str]] = {}
    for name, module in modules.items():
        for attribute, parameter in module._parameters.items():
            places.setdefault(id(parameter), []).append(f"{name}.{attribute}" if name else attribute)
    for name in names:
        shared = places[id(modules[name].weight)]
        if len(shared) > 1:
            both = " and ".join(map(repr, shared))
            raise ValueError(f"layer {name!r}: weight is shared: it is {both}; untie them or leave them out")


def _matching(pattern: str, modules: dict[str, nn.Module]) -> list[str]:
    """The convertible layers that a name or a glob matches; raises if there are none."""
    if pattern in modules:
        if type(modules[pattern]) not in _BAYESIAN:
            kind = type(modules[pattern]).__name__
            raise ValueError(f"layer {pattern!r} is a {kind}; it must be an nn.Linear or nn.Conv2d")
        return [pattern]
    hits = [n for n, module in modules.items() if name_matches(n, pattern) and type(module) in _BAYESIAN]
    if not hits:
        known = [n for n, module in modules.items() if type(module) in _BAYESIAN]
        raise ValueError(f"{pattern!r} matches no layer of the model; the layers to choose from are {known}")
    return hits
