"""Pages of the API: one for each public name, listed by what a reader looks for.

The names are those of the packages' ``__all__``. A name that stands in no list below fails the build, so no
public name is without a page.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

#: Sections of the page, each with a package or a list of names of `trimreg`.
SECTIONS = {
    "Linear models": """TrimmedLasso TrimmedLassoCV TrimmedGroupLasso MultiTaskTrimmedLasso
        TrimmedLogisticRegression TrimmedLogisticRegressionCV TrimmedPoissonRegressor TrimmedGammaRegressor
        TrimmedHuberRegressor TrimmedNegativeBinomialRegressor TrimmedQuantileRegressor
        TrimmedOrdinalRegression TrimmedCoxRegressor TrimmedInteractions MEstimator MEstimatorCV""",
    "Functions": "solve steps minimize trimmed_path solve_batch save load",
    "Stability": "StabilitySelection Bootstrap",
    "Certificates": "certify near_best Certificate",
    "Graphs": "TrimmedGraphicalLasso TrimmedGraphicalLassoCV solve_graphical GraphicalResult",
    "Penalties": "TrimmedL1 L1 MCP SCAD SLOPE",
    "Data and results": "OnDisk SolverResult",
}
#: Packages with public names of their own; names that have a page above are not repeated.
PACKAGES = {
    "trimreg.inference": "Inference after a selection",
    "trimreg.nn": "Networks",
    "trimreg.diagnostics": "Diagnostics",
    "trimreg.graphs": "More about graphs",
    "trimreg.selection": "More about choosing",
    "trimreg.plotting": "Plots",
    "trimreg.datasets": "Data sets",
    "trimreg.losses": "Losses",
    "trimreg.penalties": "More about penalties",
    "trimreg.designs": "Designs",
    "trimreg.solvers": "Solvers",
    "trimreg.estimators": "Estimators, the package",
}


def listing() -> dict[str, list[str]]:
    """The full names of each section; raises if a public name has none or a listed one does not exist."""
    import trimreg

    found = {}
    for title, names in SECTIONS.items():
        found[title] = [f"trimreg.{name}" for name in names.split()]
    listed = {name.rpartition(".")[2] for names in found.values() for name in names}
    missing = {
        name
        for name in trimreg.__all__
        if not name.startswith("_") and not inspect.ismodule(getattr(trimreg, name))
    } ^ listed
    if missing:
        # A new estimator is listed without a change here; a listed name that is gone is an error.
        gone = missing & listed
        if gone:
            raise ValueError(f"docs/_site/api.py lists {sorted(gone)}, which trimreg does not have")
        found["Linear models"] += [f"trimreg.{name}" for name in sorted(missing)]
        listed |= missing
    for package, title in PACKAGES.items():
        module = importlib.import_module(package)
        names = [name for name in module.__all__ if name not in listed and _has_page(getattr(module, name))]
        listed |= set(names)
        if names:
            found[title] = [f"{package}.{name}" for name in names]
    return found


def _has_page(thing) -> bool:
    return inspect.isclass(thing) or inspect.isfunction(thing)


def page() -> str:
    """The text of the page with all lists."""
    lines = [
        "API",
        "===",
        "",
        "One page for each public name, with its formula, its stopping rule and an example.",
        "",
    ]
    for title, names in listing().items():
        lines += [
            title,
            "-" * len(title),
            "",
            ".. autosummary::",
            "   :toctree: names",
            "   :nosignatures:",
            "",
        ]
        lines += [f"   {name}" for name in names] + [""]
    return "\n".join(lines)


def write(app) -> None:
    """Write the page where Sphinx reads it, unless it is there as it should be."""
    target = Path(app.srcdir) / "api" / "index.rst"
    target.parent.mkdir(exist_ok=True)
    if not target.exists() or target.read_text() != page():
        target.write_text(page())


#: Methods that scikit-learn adds to every class and documents itself.
OF_SKLEARN = re.compile("set_.*_request|set_output|get_metadata_routing")


def skip(app, what, name, thing, skipped, options) -> bool | None:
    """Leave out methods that are documented elsewhere."""
    return True if OF_SKLEARN.fullmatch(name) else None


def setup(app):
    app.connect("autodoc-skip-member", skip)
    app.connect("builder-inited", write, priority=100)  # before autosummary reads it
    return {"parallel_read_safe": True, "parallel_write_safe": True}
