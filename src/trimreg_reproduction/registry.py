"""The experiments by name. A module is imported when its experiment is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec

from trimreg.reports.demo import BadInput

from .spec import Experiment

#: Where each experiment stands: module and name in it, in the order of the paper.
EXPERIMENTS = {
    "fig1": "linear.fig1:EXPERIMENT",
    "fig2": "linear.recovery:FIG2",
    "fig3": "linear.recovery:FIG3",
    "fig4": "linear.fig4:EXPERIMENT",
    "figS": "graphs.figure:EXPERIMENT",
    "theory": "linear.theory:EXPERIMENT",
    "beyond": "linear.beyond:EXPERIMENT",
    "fig5": "networks.fig5:EXPERIMENT",
    "tab1": "networks.tables:TAB1",
    "tab2": "networks.tables:TAB2",
    "tab3": "networks.tables:TAB3",
    "nets": "networks.nets:EXPERIMENT",
}


def needs_torch(name: str) -> bool:
    """Whether an experiment trains networks.

    Examples
    --------
    >>> from trimreg_reproduction.registry import needs_torch
    >>> needs_torch("fig4"), needs_torch("fig5")
    (False, True)
    """
    return EXPERIMENTS[name].startswith("networks.")


def get_experiment(name: str) -> Experiment:
    """The experiment of that name.

    Examples
    --------
    >>> from trimreg_reproduction.registry import get_experiment
    >>> get_experiment("fig9")
    Traceback (most recent call last):
        ...
    trimreg.reports.demo.BadInput: no experiment 'fig9'; choose from fig1, fig2, fig3, fig4, figS, theory, beyond, fig5, tab1, tab2, tab3, nets, or all
    """  # noqa: E501
    _check(name)
    if needs_torch(name) and not _torch_is_there():
        raise BadInput(f"{name} needs PyTorch: pip install 'trimreg[networks]'")
    module, attribute = EXPERIMENTS[name].split(":")
    return getattr(import_module(f".{module}", __package__), attribute)


def expand_names(names: Iterable[str]) -> list[str]:
    """The names without repetition, in the order given; "all" stands for every experiment that can be run.

    Where PyTorch is not installed, "all" has no networks.

    Examples
    --------
    >>> from trimreg_reproduction.registry import expand_names
    >>> expand_names(["fig3", "fig1", "fig3"])
    ['fig3', 'fig1']
    >>> expand_names(["all"])[:7]
    ['fig1', 'fig2', 'fig3', 'fig4', 'figS', 'theory', 'beyond']
    """
    expanded: dict[str, None] = {}
    for name in [names] if isinstance(names, str) else names:
        if name == "all":
            there = _torch_is_there()
            expanded.update(dict.fromkeys(one for one in EXPERIMENTS if there or not needs_torch(one)))
        else:
            _check(name)
            expanded[name] = None
    if not expanded:
        raise BadInput(f"name an experiment: {', '.join(EXPERIMENTS)}, or all")
    return list(expanded)


def _torch_is_there():
    return find_spec("torch") is not None


def _check(name):
    if name not in EXPERIMENTS:
        raise BadInput(f"no experiment {name!r}; choose from {', '.join(EXPERIMENTS)}, or all")
