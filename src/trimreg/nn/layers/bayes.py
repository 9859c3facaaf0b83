r"""Bayesian layers: every weight has a normal posterior whose spread is in proportion to its mean.

The posterior of a weight is :math:`N(\phi, \alpha\phi^2)` with both :math:`\phi` and :math:`\alpha` learnt,
the prior log-uniform (D. P. Kingma, T. Salimans, M. Welling, "Variational dropout and the local
reparameterization trick", NIPS 2015). The layers are PyTorch's own with one parameter more: ``weight`` is
:math:`\phi` and ``log_alpha`` has its shape. A weight with :math:`\phi = 0` is 0 without noise, so that
cutting a group of means cuts the group.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..penalty.resolve import name_matches
from .bounded import bounded
from .copies import conv_arguments, copied_into

#: Coefficients of alpha, alpha^2 and alpha^3 in the approximate negative KL divergence (Kingma 2015).
KL_COEFFICIENTS = (1.16145124, -1.50204118, 0.58629921)


def log_uniform_kl(log_alpha: Tensor) -> Tensor:
    r"""Divergence of :math:`N(\phi, \alpha\phi^2)` from the log-uniform prior by entry, up to a constant.

    .. math:: -KL = \tfrac12\log\alpha + c_1\alpha + c_2\alpha^2 + c_3\alpha^3, \qquad \alpha \le 1

    The constants are those of Kingma 2015. The divergence does not depend on :math:`\phi`.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.layers.bayes import log_uniform_kl
    >>> log_uniform_kl(torch.tensor([-10.0, 0.0]))
    tensor([ 4.9999, -0.2457])
    """
    if torch.compiler.is_compiling():
        return _log_uniform_kl(log_alpha)  # the compiler fuses it, and PyTorch 2.11 loses the slope below
    return _LogUniformKL.apply(log_alpha)


def _log_uniform_kl(log_alpha):
    first, second, third = KL_COEFFICIENTS
    alpha = log_alpha.exp()
    return -0.5 * log_alpha - alpha * (first + alpha * (second + third * alpha))


class _LogUniformKL(torch.autograd.Function):
    """The polynomial with its slope written out: half as many passes over the weights as by autograd."""

    generate_vmap_rule = True

    @staticmethod
    def forward(log_alpha):
        first, second, third = KL_COEFFICIENTS
        alpha = log_alpha.exp()
        value = (-third * alpha).sub_(second).mul_(alpha).sub_(first).mul_(alpha)
        return value.sub_(log_alpha, alpha=0.5)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        first, second, third = KL_COEFFICIENTS
        alpha = ctx.saved_tensors[0].exp()
        return gradient * -(0.5 + alpha * (first + alpha * (2 * second + 3 * third * alpha)))


def with_noise(mean: Tensor, variance: Tensor) -> Tensor:
    """A draw of independent normals of these means and variances; without noise where the variance is 0.

    The square root has no finite slope at 0, so it is taken of ``variance + tiny`` less ``sqrt(tiny)``, where
    tiny is the least normal number of the type: a power of 4, hence exactly 0 at variance 0, with slope
    finite and multiplied by the zero slope of the variance. In float16 ``sqrt(tiny)`` is 0.008, which hides
    smaller deviations: give the variance in float32, also to means in half precision.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.layers.bayes import with_noise
    >>> with_noise(torch.tensor([1.0, 2.0]), torch.zeros(2)).tolist()
    [1.0, 2.0]
    """
    tiny = torch.finfo(variance.dtype).tiny
    deviation = (variance + tiny).sqrt() - math.sqrt(tiny)
    return torch.addcmul(mean, deviation.to(mean.dtype), torch.randn_like(mean))


def _at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Bayesian:
    """What Bayesian layers share: a mixin over a module with ``weight`` and ``log_alpha`` of one shape."""

    replica_axes = 0  # leading axes of the parameters that count networks trained side by side

    def _start_posterior(self, initial_log_alpha: float) -> None:
        _check_log_alpha(initial_log_alpha)
        self.log_alpha = nn.Parameter(torch.full_like(self.weight, initial_log_alpha, requires_grad=True))

    def bounded_log_alpha(self) -> Tensor:
        """``log_alpha``, at most 0: above 1 the KL polynomial does not hold."""
        return bounded(self.log_alpha, high=0.0)

    def weight_variance(self) -> Tensor:
        r"""The posterior variance :math:`\alpha\phi^2` of every weight, at least in float32.

        In float16 it is 0 for most weights.
        """
        log_alpha, weight = self.bounded_log_alpha(), self.weight
        return _at_least_float32(log_alpha).exp() * _at_least_float32(weight).square()

    def sampled_weight(self, generator: torch.Generator | None = None) -> Tensor:
        r"""A fresh draw of the weights, :math:`\phi(1 + \sqrt\alpha\,\varepsilon)`, differentiable."""
        if generator is None:
            noise = torch.randn_like(self.weight)
        else:  # which randn_like does not take
            noise = torch.empty_like(self.weight).normal_(generator=generator)
        return torch.addcmul(self.weight, self.weight, (0.5 * self.bounded_log_alpha()).exp() * noise)

    def kl(self) -> Tensor:
        """The sum of :func:`log_uniform_kl` over the entries, at least in float32; one number a replica."""
        log_alpha = _at_least_float32(self.bounded_log_alpha())
        return log_uniform_kl(log_alpha).flatten(self.replica_axes).sum(-1)

    def kl_entries(self) -> int:
        """How many entries :meth:`kl` sums over."""
        return math.prod(self.log_alpha.shape[self.replica_axes :])

    def _noisy(self, mean: Tensor, x: Tensor, response) -> Tensor:
        """Local reparameterization: ``response(x^2, weight variance)`` is the variance of the output."""
        variance = self.weight_variance()
        half = variance.dtype != self.weight.dtype
        if not half and not _loses_small_numbers(x.device.type):
            return with_noise(mean, response(x.square(), variance))
        # In float32 at least, also under autocast: alpha phi^2 x^2 soon is 0 in float16.
        with torch.autocast(x.device.type, enabled=False):
            return with_noise(mean, response(x.to(variance.dtype).square(), variance))


def _loses_small_numbers(device: str) -> bool:
    """Whether autocast would lower products to a type of less range than float32; bfloat16 has the same."""
    return torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) != torch.bfloat16


def _check_log_alpha(start: float) -> None:
    if not (math.isfinite(start) and start <= 0):
        raise ValueError(f"initial_log_alpha must be finite and at most 0; got {start!r}")


class BayesLinear(Bayesian, nn.Linear):
    r"""A linear layer with posterior :math:`N(\phi, \alpha\phi^2)` on its weights.

    In training the output is drawn from its own distribution (local reparameterization)

    .. math:: y_o \sim N\Big(\sum_i \phi_{oi} x_i + b_o,\; \sum_i \alpha_{oi}\phi_{oi}^2 x_i^2\Big)

    with fresh noise for every sample; in evaluation it is the mean. The bias has no posterior.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.layers.bayes import BayesLinear
    >>> layer = BayesLinear(3, 2, initial_log_alpha=-4.0)
    >>> x = torch.ones(5, 3)
    >>> layer(x).shape, bool((layer(x) == layer(x)).any())
    (torch.Size([5, 2]), False)
    >>> torch.equal(layer.eval()(x), layer(x))
    True
    """

    def __init__(
        self, in_features, out_features, bias=True, device=None, dtype=None, *, initial_log_alpha=-10.0
    ):
        super().__init__(in_features, out_features, bias, device, dtype)
        self._start_posterior(initial_log_alpha)

    def forward(self, x: Tensor) -> Tensor:
        mean = super().forward(x)
        return self._noisy(mean, x, functional.linear) if self.training else mean

    def plain(self) -> nn.Linear:
        """The layer of the posterior means, with values of its own."""
        return copied_into(nn.Linear, self, self.in_features, self.out_features, self.bias is not None)


class BayesConv2d(Bayesian, nn.Conv2d):
    r"""A convolution with posterior :math:`N(\phi, \alpha\phi^2)` on its weights; see :class:`BayesLinear`.

    The noise is drawn for every output pixel by itself, as is usual: the law of each is right, and what
    pixels have in common by sharing a filter is left out.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.layers.bayes import BayesConv2d
    >>> BayesConv2d(1, 4, 3, padding=1)(torch.ones(2, 1, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    def __init__(self, *args, initial_log_alpha=-10.0, **kwargs):
        super().__init__(*args, **kwargs)
        self._start_posterior(initial_log_alpha)

    def forward(self, x: Tensor) -> Tensor:
        mean = super().forward(x)
        return self._noisy(mean, x, self._variance_response) if self.training else mean

    def _variance_response(self, squares: Tensor, variance: Tensor) -> Tensor:
        return self._conv_forward(squares, variance, None)

    def plain(self) -> nn.Conv2d:
        """The layer of the posterior means, with values of its own."""
        return copied_into(nn.Conv2d, self, *conv_arguments(self))


# -- whole models ---------------------------------------------------------------------------------------


def bayesian_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The Bayesian layers of a model by name; a ValueError where it has none."""
    found = {name: module for name, module in model.named_modules() if isinstance(module, Bayesian)}
    if not found:
        raise ValueError(f"{type(model).__name__} has no Bayesian layers: make some with bayesianize(model)")
    return found


def kl_divergence(model: nn.Module) -> Tensor:
    """The divergence of the posterior from the prior: :func:`log_uniform_kl` summed over all weights.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn.layers.bayes import bayesianize, kl_divergence
    >>> model = bayesianize(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)))
    >>> round(kl_divergence(model).item(), 3)  # eight weights, 4.99995 each
    40.0
    """
    return sum(layer.kl() for layer in bayesian_layers(model).values())


def kl_loss(model: nn.Module, n: int, kl: str = "1/N") -> Tensor:
    r"""What the divergence adds to a mean loss over ``n`` samples.

    ``"1/N"``: :math:`KL/n`, the evidence lower bound a sample. ``"paper"``: the mean over the weights of
    each layer, divided by 3 and summed over layers, as the authors of the trimmed penalty weigh it in their
    code; ``n`` plays no part.

    Examples
    --------
    >>> from torch import nn
    >>> from trimreg.nn.layers.bayes import bayesianize, kl_loss
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


_LAZY = {nn.LazyLinear: BayesLinear, nn.LazyConv2d: BayesConv2d}  # to be chosen, and refused by name
_BAYESIAN = {nn.Linear: BayesLinear, nn.Conv2d: BayesConv2d, **_LAZY}


def bayesianize(model: nn.Module, names=None, initial_log_alpha: float = -10.0) -> nn.Module:
    """Make linear and 2d convolution layers Bayesian, in place; returns the model.

    The layers stay the same objects with the same parameters, and get ``log_alpha`` besides. So shared layers
    stay shared and hooks stay; build the optimizer afterwards, so that it knows the new parameters.

    Parameters
    ----------
    model : nn.Module
    names : None, str or iterable of str
        Names in ``named_modules``, or globs such as ``"features.*"``
        (:func:`trimreg.nn.penalty.resolve.name_matches`). None: all layers that are exactly
        ``nn.Linear`` or ``nn.Conv2d``. A name that matches nothing, or a layer that cannot be converted, is
        an error when named. A frozen layer (whose weight has ``requires_grad=False``) stays as it is, and is
        an error when named in full. A layer that shares its weight with another is an error: the weight
        would have two posteriors. So is a lazy layer that has not run yet.
    initial_log_alpha : float

    Examples
    --------
    >>> from torch import nn
    >>> from trimreg.nn.layers.bayes import bayesianize
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
        raise ValueError(f"the layers {chosen} are frozen (requires_grad is False); train one of them")
    _refuse_shared(convert, modules)
    for name in convert:
        module = modules[name]
        module.__class__ = _BAYESIAN[type(module)]
        module._start_posterior(initial_log_alpha)
    return model


def _convertible(name: str, module: nn.Module, named: bool) -> bool:
    """Whether a layer is to be converted: not if it is frozen. What cannot be is an error that says why."""
    weight = module._parameters.get("weight")
    if not isinstance(weight, nn.Parameter):
        raise ValueError(f"the weight of layer {name!r} is computed (pruned or normalized); undo that first")
    if type(module) in _LAZY:
        raise ValueError(
            f"layer {name!r} is lazy and has no weights yet; run the model once on a batch first"
        )
    if named and not weight.requires_grad:
        raise ValueError(
            f"layer {name!r}: weight is frozen (requires_grad is False); train it or leave the layer out"
        )
    return weight.requires_grad


def _refuse_shared(names: list[str], modules: dict[str, nn.Module]) -> None:
    """A weight of two layers would have two spreads, and its divergence would count twice."""
    places = {}
    for name, module in modules.items():
        for attribute, parameter in module._parameters.items():
            places.setdefault(id(parameter), []).append(f"{name}.{attribute}" if name else attribute)
    for name in names:
        shared = places[id(modules[name].weight)]
        if len(shared) > 1:
            raise ValueError(
                f"layer {name!r}: weight is shared: it is {' and '.join(map(repr, shared))}, and can have "
                "only one posterior; untie them, or leave these layers out with names="
            )


def _matching(pattern: str, modules: dict[str, nn.Module]) -> list[str]:
    """Convertible layers under a name or a pattern; only a full name may hit a layer that is none."""
    if pattern in modules:
        if type(modules[pattern]) not in _BAYESIAN:
            kind = type(modules[pattern]).__name__
            raise ValueError(
                f"layer {pattern!r} is a {kind}; only nn.Linear and nn.Conv2d can be made Bayesian"
            )
        return [pattern]
    hits = [n for n, module in modules.items() if name_matches(n, pattern) and type(module) in _BAYESIAN]
    if not hits:
        known = [n for n, module in modules.items() if type(module) in _BAYESIAN]
        raise ValueError(
            f"no layer of the model matches {pattern!r}; those that can be made Bayesian: {known}"
        )
    return hits
