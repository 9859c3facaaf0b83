r"""How a network is trained: every choice is a field of :class:`Recipe`.

Times are fractions of the training, so that a recipe keeps its shape when it is made shorter. The learning
rate is constant (after a linear warm-up) until ``decay_from`` and then follows a cosine,

.. math:: \eta(t) = \eta \Big(f + (1 - f) \tfrac12 \big(1 + \cos \pi \tfrac{t - d}{1 - d}\big)\Big),

with f = ``final_rate`` and d = ``decay_from``. The number of free groups comes down from all to the target
between ``shrink_from`` and ``shrink_until`` by the power ``shrink_power`` of
:class:`trimreg.nn.penalty.schedules.Ramp`; from ``freeze_at`` on the structure holds and nothing is
penalized.

``"paper"`` is the authors' recipe as their public code has it: Adam at a constant 1e-3, hard masks from the
first epochs, no decay, no fine-tuning. ``"ours"`` lets h come down slowly, then freezes and decays.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from .architectures import layers_of

FORMS = ("plain", "bayes", "l0")
#: Methods with L0 gates: at given prices, at prices by layer, and at prices that lead to a size.
GATED = ("l0", "l0 separate", "l0 to size")
CHOICES = {
    "form": FORMS,
    "input_scaling": ("unit", "standard"),
    "teacher": ("own", "average"),
    "kl": ("none", "1/N", "paper"),
    "mode": ("exact", "bcd", "subgradient"),
    "metric": ("plain", "optimizer"),
    "order": ("together", "first", "last"),
    "criterion": ("norm", "activity", "taylor"),
    "precision": ("float32", "tf32", "bfloat16"),
}


@dataclass(frozen=True)
class Recipe:
    """All choices of a training.

    Attributes
    ----------
    name : str
    form : {"plain", "bayes", "l0"}
        Layers with weights, with a posterior N(phi, alpha phi^2), or with hard-concrete gates.
    epochs, batch : int
    learning_rate, warmup, decay_from, final_rate : float
        Adam's rate; fractions of the training at which warm-up ends and decay begins (1 is never); rate at
        the end as a fraction of the first.
    weight_decay : float
        Decoupled, on weights alone (not on biases, noise or gates).
    input_scaling : {"unit", "standard"}
        Pixels from 0 to 1, or less their mean and over their deviation (one number each for all pixels).
    input_dropout, label_smoothing : float
    averaging, averaging_from : float
        Decay of an exponential average of the weights (0: none), which is what is tested and kept, and the
        fraction of the training at which it begins.
    distill, temperature, teacher : float, float, {"own", "average"}
        Weight of the Kullback-Leibler loss to a dense network trained first with the same recipe and seeds
        (0: none), its temperature, and whether a replica learns from the network of its own seed or from
        the average of all of them.
    initial_log_alpha, kl, kl_scale, kl_ramp
        Bayesian layers: first value; weight 1/N or the authors' mean/3; a factor; the fraction of the
        training over which the weight of the divergence rises linearly.
    mode, alpha, tau, metric
        As :class:`trimreg.nn.TrimmedGroupL1` takes them; ``alpha=inf`` sets groups beyond h(t) to 0.
    masked_forward : bool
        Whether groups with w = 1 take no part in the forward pass though their weights live on (the
        authors' masks).
    shrink_from, shrink_until, shrink_power, freeze_at
        When h comes down, and from when on the structure holds (None: never).
    order : {"together", "first", "last"}
        Whether all layers shrink at the same time, or one after the other, the first or the last layer first,
        each in a window of the time.
    criterion : {"norm", "activity", "taylor"}
        What the groups are ranked by: the norm, the norm times the root mean square of the unit's input (of
        dense layers; a convolution is ranked by its norm), or the mean square of weight times gradient.
    l0_lambda : tuple of float
        Price of a weight over the number of images, a number for each layer, of L0 gates.
    l0_lambda_separate : tuple of float
        The same for the row with separate lambdas.
    l0_weight_decay : float
        Half of it times the expected squared norm of the open groups is added to the mean loss, of L0 gates.
    precision : {"float32", "tf32", "bfloat16"}
        How training multiplies on CUDA; with "bfloat16" activations are kept in it too, on any device.
        Parameters are float32, and networks are tested in it.
    compile : bool
        Whether on CUDA the loss of the images goes through ``torch.compile``, which about halves the time of
        a step. Noise then comes from another stream.
    """

    name: str = "ours"
    form: str = "bayes"
    epochs: int = 80
    batch: int = 100
    learning_rate: float = 1e-3
    warmup: float = 0.0
    decay_from: float = 0.45
    final_rate: float = 0.0
    weight_decay: float = 0.0
    input_scaling: str = "standard"
    input_dropout: float = 0.0
    label_smoothing: float = 0.0
    averaging: float = 0.0
    averaging_from: float = 0.45
    distill: float = 0.0
    temperature: float = 2.0
    teacher: str = "own"
    initial_log_alpha: float = -5.0
    kl: str = "1/N"
    kl_scale: float = 1.0
    kl_ramp: float = 0.3
    mode: str = "exact"
    alpha: float = math.inf
    tau: float = 1e-3
    metric: str = "plain"
    masked_forward: bool = False
    shrink_from: float = 0.05
    shrink_until: float = 0.45
    shrink_power: float = 3.0
    freeze_at: float | None = 0.45
    order: str = "together"
    criterion: str = "norm"
    l0_lambda: tuple[float, ...] = (0.1, 0.1, 0.1, 0.1)
    l0_lambda_separate: tuple[float, ...] = (0.1, 0.3, 0.4, 0.4)
    l0_weight_decay: float = 5e-4
    precision: str = "float32"
    compile: bool = False

    def __post_init__(self):
        for field, choices in CHOICES.items():
            if getattr(self, field) not in choices:
                raise ValueError(f"{field} must be one of {choices}; got {getattr(self, field)!r}")
        for field in ("warmup", "decay_from", "averaging_from", "kl_ramp", "shrink_from", "shrink_until"):
            if not 0.0 <= getattr(self, field) <= 1.0:
                raise ValueError(
                    f"{field} is a fraction of the training, from 0 to 1; got {getattr(self, field)}"
                )
        for field in ("input_dropout", "label_smoothing", "averaging", "distill", "final_rate"):
            if not 0.0 <= getattr(self, field) <= 1.0:
                raise ValueError(f"{field} must be from 0 to 1; got {getattr(self, field)}")
        if self.epochs < 1 or self.batch < 1:
            raise ValueError(f"epochs and batch must be at least 1; got {self.epochs} and {self.batch}")
        if self.shrink_from > self.shrink_until:
            raise ValueError(f"shrink_from = {self.shrink_from} is after shrink_until = {self.shrink_until}")
        hard = self.mode == "exact" and self.alpha == math.inf
        if self.criterion != "norm" and not hard:
            raise ValueError(f"criterion {self.criterion!r} only ranks groups; take it with alpha=inf")
        if self.freeze_at is not None and not self.shrink_until <= self.freeze_at <= 1.0:
            raise ValueError(
                f"freeze_at = {self.freeze_at} must be from shrink_until = {self.shrink_until} to 1"
            )

    def change(self, **changes) -> Recipe:
        """A copy with other values.

        Examples
        --------
        >>> from trimreg_reproduction.networks.recipes import Recipe
        >>> Recipe().change(epochs=3).epochs
        3
        >>> Recipe().change(epoch=3)
        Traceback (most recent call last):
            ...
        ValueError: a recipe has no field 'epoch'; did you mean epochs?
        """
        known = {field.name for field in dataclasses.fields(self)}
        for name in changes:
            if name not in known:
                from difflib import get_close_matches

                near = get_close_matches(name, known, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ValueError(f"a recipe has no field {name!r}{hint}")
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict:
        """Plain values, for JSON: infinity is the string "inf"."""
        return {
            key: "inf" if value == math.inf else list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(self).items()
        }


def parse_changes(settings: Mapping[str, object]) -> dict:
    """Values of fields from JSON or from texts such as ``epochs=40`` on a command line.

    Examples
    --------
    >>> from trimreg_reproduction.networks.recipes import parse_changes
    >>> parse_changes({"epochs": "40", "alpha": "inf", "order": "first", "freeze_at": "null"})
    {'epochs': 40, 'alpha': inf, 'order': 'first', 'freeze_at': None}
    """
    found = {}
    for name, value in settings.items():
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except json.JSONDecodeError:
                value = math.inf if value == "inf" else value
        found[name] = tuple(value) if isinstance(value, list) else value
    return found


# -- what a recipe says at a step -------------------------------------------------------------------------


def learning_rates(recipe: Recipe, steps: int) -> list[float]:
    """The learning rate of every step.

    Examples
    --------
    >>> from trimreg_reproduction.networks.recipes import Recipe, learning_rates
    >>> recipe = Recipe(learning_rate=1.0, decay_from=0.5)
    >>> [round(rate, 2) for rate in learning_rates(recipe, 8)]
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.85, 0.5, 0.15]
    """
    rates = []
    for step in range(steps):
        t = step / steps
        rate = recipe.learning_rate
        if t < recipe.warmup:
            rate *= (step + 1) / (recipe.warmup * steps + 1)
        if t > recipe.decay_from:
            fallen = (t - recipe.decay_from) / (1.0 - recipe.decay_from)
            rate *= recipe.final_rate + (1.0 - recipe.final_rate) * 0.5 * (1.0 + math.cos(math.pi * fallen))
        rates.append(rate)
    return rates


def kl_weights(recipe: Recipe, steps: int) -> list[float]:
    """The factor of the divergence at every step: a linear rise to ``kl_scale``.

    Examples
    --------
    >>> from trimreg_reproduction.networks.recipes import Recipe, kl_weights
    >>> kl_weights(Recipe(kl_ramp=0.5), 4)
    [0.0, 0.5, 1.0, 1.0]
    """
    rise = recipe.kl_ramp * steps
    return [recipe.kl_scale * (min(1.0, step / rise) if rise > 0 else 1.0) for step in range(steps)]


def averaging_weights(recipe: Recipe, steps: int) -> list[float]:
    """How far the average moves to the weights at every step: 1 until it begins.

    Examples
    --------
    >>> from trimreg_reproduction.networks.recipes import Recipe, averaging_weights
    >>> averaging_weights(Recipe(averaging=0.75, averaging_from=0.5), 4)
    [1.0, 1.0, 0.25, 0.25]
    """
    begin = recipe.averaging_from * steps
    return [1.0 - recipe.averaging if step >= begin else 1.0 for step in range(steps)]


def shrink_windows(recipe: Recipe, layers: list[str], steps: int) -> dict[str, tuple[int, int]]:
    """First and last step of the time in which each layer shrinks.

    In an order, windows are half of the time long and begin at equal distances.

    Examples
    --------
    >>> from trimreg_reproduction.networks.recipes import Recipe, shrink_windows
    >>> recipe = Recipe(shrink_from=0.0, shrink_until=0.8, freeze_at=0.8)
    >>> shrink_windows(recipe, ["fc1", "fc2", "fc3"], 100)
    {'fc1': (0, 80), 'fc2': (0, 80), 'fc3': (0, 80)}
    >>> shrink_windows(recipe.change(order="first"), ["fc1", "fc2", "fc3"], 100)
    {'fc1': (0, 40), 'fc2': (20, 60), 'fc3': (40, 80)}
    """
    begin, end = round(recipe.shrink_from * steps), round(recipe.shrink_until * steps)
    if recipe.order == "together" or len(layers) == 1:
        return dict.fromkeys(layers, (begin, end))
    half, windows = (end - begin) // 2, {}
    ranked = layers if recipe.order == "first" else layers[::-1]
    for rank, name in enumerate(ranked):
        start = begin + round(rank * (end - begin - half) / (len(layers) - 1))
        windows[name] = (start, start + half)
    return {name: windows[name] for name in layers}


# -- the recipes ------------------------------------------------------------------------------------------

PAPER = Recipe(
    name="paper",
    epochs=122,
    decay_from=1.0,
    initial_log_alpha=-10.0,
    kl="paper",
    kl_ramp=0.0,
    mode="subgradient",
    alpha=1e-4,
    masked_forward=True,
    shrink_from=0.0,
    shrink_until=0.0,
    freeze_at=None,
    precision="tf32",
    compile=True,
)
#: Chosen on the validation split. Ranking groups by weight times gradient was worth 0.1 to 0.15 % of error
#: against their norms, twice the epochs about 0.08 %.
OURS = Recipe(criterion="taylor", precision="tf32", compile=True)

#: Changes to the two recipes, by table. The prices of gates are those of Louizos, Welling and Kingma (2018).
CHANGES: dict[str, dict[str, dict]] = {
    "tab1": {"ours": {"form": "plain", "input_dropout": 0.2}, "paper": {"form": "plain"}},
    "tab2": {"ours": {"epochs": 160}, "paper": {}},
    "tab3": {"ours": {"epochs": 160, "l0_lambda_separate": (10.0, 0.5, 0.1, 10.0)}, "paper": {}},
    "LeNet-5 beyond": {"ours": {}, "paper": {}},
    "plain LeNet-5": {
        "ours": {"form": "plain", "input_dropout": 0.1, "epochs": 40},
        "paper": {"form": "plain"},
    },
}
#: What --quick changes: a few passes over few images, so that every line of the code is run.
QUICK = {"epochs": 3}


def get_recipe(table: str, name: str, quick: bool = False) -> Recipe:
    """The recipe of that name for a table.

    Examples
    --------
    >>> from trimreg_reproduction.networks.recipes import get_recipe
    >>> get_recipe("tab1", "ours").form, get_recipe("tab2", "paper").epochs
    ('plain', 122)
    """
    if name not in ("ours", "paper"):
        raise ValueError(f"no recipe {name!r}; choose from ours, paper")
    recipe = (OURS if name == "ours" else PAPER).change(**CHANGES[table][name])
    return recipe.change(**QUICK) if quick else recipe


def for_method(recipe: Recipe, method: str, network: str) -> Recipe:
    """The recipe as a method takes it: the same schedule, epochs and noise, another way to shrink.

    Magnitude pruning cuts once, when ours would freeze; L0 has gates in place of the posterior, and no
    divergence but its own.

    Examples
    --------
    >>> from trimreg_reproduction.networks.recipes import OURS, for_method
    >>> cut = for_method(OURS, "magnitude", "LeNet-300-100")
    >>> cut.shrink_from, cut.shrink_until, cut.freeze_at
    (0.45, 0.45, 0.45)
    """
    if method == "magnitude":
        when = 0.45 if recipe.freeze_at is None else recipe.freeze_at
        return recipe.change(
            shrink_from=when, shrink_until=when, freeze_at=when, mode="exact", alpha=math.inf,
            order="together", criterion="norm", masked_forward=False,
        )  # fmt: skip
    if method in GATED:
        prices = recipe.l0_lambda_separate if method == "l0 separate" else recipe.l0_lambda
        return recipe.change(form="l0", kl="none", l0_lambda=prices[: len(layers_of(network))])
    return recipe
