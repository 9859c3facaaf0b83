"""The experiments by name. A module is imported when its experiment is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec

from .spec import BadInput, Experiment

#: The module and the name of each experiment, in the order of the paper, then those of two other papers.
EXPERIMENTS = {
    "fig1": "linear.fig1:EXPERIMENT",
    "fig2": "linear.recovery:FIG2",
    "fig3": "linear.recovery:FIG3",
    "fig4": "linear.fig4:EXPERIMENT",
    "figS": "graphs.figure:EXPERIMENT",
    "theory": "linear.theory:EXPERIMENT",
    "beyond": "linear.beyond:EXPERIMENT",
    "gsm": "linear.gsm:EXPERIMENT",
    "bcm": "linear.bcm:EXPERIMENT",
    "fig5": "networks.fig5:EXPERIMENT",
    "tab1": "networks.tables:TAB1",
    "tab2": "networks.tables:TAB2",
    "tab3": "networks.tables:TAB3",
    "nets": "networks.nets:EXPERIMENT",
    "penalty": "networks.penalty:EXPERIMENT",
}


def needs_torch(name: str) -> bool:
    """Whether an experiment trains networks."""
    return EXPERIMENTS[name].startswith("networks.")


def get_experiment(name: str) -> Experiment:
    """The experiment of that name.

    Examples
    --------
    >>> from trimreg_reproduction.registry import get_experiment
    >>> get_experiment("fig4").title
    'Small lambda, and the effect of h'
    """
    _check(name)
    if needs_torch(name) and not _has_torch():
        raise BadInput(f"{name} needs PyTorch: pip install 'trimreg[networks]'")
    module, attribute = EXPERIMENTS[name].split(":")
    return getattr(import_module(f".{module}", __package__), attribute)


def expand_names(names: str | Iterable[str]) -> list[str]:
    """The names without repetition, in the order given; "all" stands for every experiment that can run.

    Without PyTorch, "all" leaves out the experiments with networks.

    Examples
    --------
    >>> from trimreg_reproduction.registry import expand_names
    >>> expand_names(["fig3", "fig1", "fig3"])
    ['fig3', 'fig1']
    """
    expanded: dict[str, None] = {}
    for name in [names] if isinstance(names, str) else names:
        if name == "all":
            torch = _has_torch()
            expanded.update(dict.fromkeys(one for one in EXPERIMENTS if torch or not needs_torch(one)))
        else:
            _check(name)
            expanded[name] = None
    if not expanded:
        raise BadInput(f"name an experiment: {', '.join(EXPERIMENTS)}, or all")
    return list(expanded)


def _has_torch():
    return find_spec("torch") is not None


def _check(name):
    if name not in EXPERIMENTS:
        raise BadInput(f"no experiment {name!r}; choose from {', '.join(EXPERIMENTS)}, or all")
