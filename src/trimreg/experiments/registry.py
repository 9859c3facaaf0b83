"""The experiments by name. A module is imported when its experiment is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from .demo import BadInput
from .spec import Experiment

#: Where each experiment stands: module and name in it, in the order of the paper.
EXPERIMENTS = {
    "fig1": "fig1:EXPERIMENT",
    "fig2": "recovery:FIG2",
    "fig3": "recovery:FIG3",
    "fig4": "fig4:EXPERIMENT",
    "figS": "figs:EXPERIMENT",
    "theory": "theory:EXPERIMENT",
    "beyond": "beyond:EXPERIMENT",
}


def get_experiment(name: str) -> Experiment:
    """The experiment of that name.

    Examples
    --------
    >>> from trimreg.experiments.registry import get_experiment
    >>> get_experiment("fig5")
    Traceback (most recent call last):
        ...
    trimreg.experiments.demo.BadInput: no experiment 'fig5'; choose from fig1, fig2, fig3, fig4, figS, theory, beyond, or all
    """  # noqa: E501
    _check(name)
    module, attribute = EXPERIMENTS[name].split(":")
    return getattr(import_module(f".{module}", __package__), attribute)


def expand_names(names: Iterable[str]) -> list[str]:
    """The names without repetition, in the order given; "all" stands for every experiment.

    Examples
    --------
    >>> from trimreg.experiments.registry import expand_names
    >>> expand_names(["fig3", "fig1", "fig3"])
    ['fig3', 'fig1']
    >>> expand_names(["all"])
    ['fig1', 'fig2', 'fig3', 'fig4', 'figS', 'theory', 'beyond']
    """
    expanded: dict[str, None] = {}
    for name in [names] if isinstance(names, str) else names:
        if name == "all":
            expanded.update(dict.fromkeys(EXPERIMENTS))
        else:
            _check(name)
            expanded[name] = None
    if not expanded:
        raise BadInput(f"name an experiment: {', '.join(EXPERIMENTS)}, or all")
    return list(expanded)


def _check(name):
    if name not in EXPERIMENTS:
        raise BadInput(f"no experiment {name!r}; choose from {', '.join(EXPERIMENTS)}, or all")
