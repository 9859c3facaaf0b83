"""Experiments by name."""

from importlib.util import find_spec

import pytest

from trimreg_reproduction import registry
from trimreg_reproduction.spec import SIZES, BadInput, Experiment


@pytest.mark.parametrize("name", registry.EXPERIMENTS)
def test_every_name_has_its_experiment(name):
    module = registry.EXPERIMENTS[name].split(":")[0]
    if find_spec(f"trimreg_reproduction.{module}") is None:
        pytest.fail(f"{name} stands in the registry, but there is no module {module}")
    experiment = registry.get_experiment(name)
    assert isinstance(experiment, Experiment)
    assert experiment.name == name
    for size in SIZES:
        names = [cell.name for cell in experiment.cells(size)]
        assert names
        assert len(set(names)) == len(names)


def test_a_module_is_imported_when_it_is_asked_for(monkeypatch):
    monkeypatch.setitem(registry.EXPERIMENTS, "odd", "spec:SIZES")
    assert registry.get_experiment("odd") is SIZES


@pytest.mark.parametrize("name", ["fig9", "", "FIG1", "all"])
def test_an_unknown_name_lists_the_known(name):
    with pytest.raises(BadInput) as caught:
        registry.get_experiment(name)
    for known in registry.EXPERIMENTS:
        assert known in str(caught.value)


def test_names_are_expanded():
    everything = list(registry.EXPERIMENTS)
    assert registry.expand_names(["all"]) == everything
    assert registry.expand_names("fig2") == ["fig2"]
    assert registry.expand_names(["theory", "all"]) == [
        "theory",
        *(name for name in everything if name != "theory"),
    ]
    with pytest.raises(BadInput, match="no experiment 'fig9'"):
        registry.expand_names(["fig1", "fig9"])
    with pytest.raises(BadInput, match="name an experiment"):
        registry.expand_names([])


def test_networks_need_torch_and_nothing_else_does(monkeypatch):
    monkeypatch.setattr(registry, "_has_torch", lambda: False)
    linear = ["fig1", "fig2", "fig3", "fig4", "figS", "theory", "beyond", "gsm", "bcm"]
    assert registry.expand_names(["all"]) == linear
    with pytest.raises(BadInput, match=r"tab1 needs PyTorch: pip install 'trimreg\[networks\]'"):
        registry.get_experiment("tab1")
