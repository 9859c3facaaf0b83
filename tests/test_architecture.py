"""Who may import whom, read from the source: imports at the top, inside functions, and by name.

The table is the design's. A room may always import itself. ``solvers`` may import the protocol modules
(``designs.base``, ``losses.base``, ``penalties.base``) and no concrete design, loss or penalty.
"""

import ast
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import trimreg

SOURCE = Path(trimreg.__file__).parent
PACKAGE = "trimreg"
LINES_AT_MOST = 500

BELOW_ESTIMATORS = ["designs", "losses", "penalties", "solvers", "diagnostics"]
SHARED = ["_files", "_lazy"]  # any room may use these
MAY_IMPORT = {
    "_files": [],
    "_lazy": [],
    "designs": [],
    "losses": [],
    "penalties": [],
    "plotting": [],
    "datasets": [],
    "solvers": ["designs.base", "losses.base", "penalties.base"],
    "diagnostics": ["losses", "penalties"],
    "estimators": BELOW_ESTIMATORS,
    "selection": [*BELOW_ESTIMATORS, "estimators"],
    "graphs": [*BELOW_ESTIMATORS, "estimators", "selection", "plotting"],
    "nn": ["penalties"],
}
MAY_IMPORT["reports"] = [*MAY_IMPORT, PACKAGE]
MAY_IMPORT["cli"] = [*MAY_IMPORT, PACKAGE]
MAY_IMPORT["__main__"] = ["cli"]
# the public names
MAY_IMPORT[""] = [room for room in MAY_IMPORT if room not in ("cli", "reports", "__main__")]

#: Public names of the top level, and the room that each comes from: ``from trimreg import MCP`` in a room is
#: an import of ``penalties``.
HOME = {name: where.lstrip(".") for name, where in trimreg._WHERE.items()}


class Import(NamedTuple):
    """One import: where it stands, and the full dotted name that it asks for."""

    line: int
    target: str
    at_top: bool  # whether it runs when the module is imported


# -- reading imports ------------------------------------------------------------------------------------


def imports_of(source: str, module: str, is_package: bool = False) -> list[Import]:
    """All imports in ``source``, the text of the module of that dotted name."""
    found = []
    tree = ast.parse(source)
    nested = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for node in ast.walk(function)
        if node is not function
    }
    importers = _import_functions(tree)
    for node in ast.walk(tree):
        targets = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node.module or "", node.level, module, is_package)
            targets = [f"{base}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and _name_of(node.func) in importers and node.args:
            targets = [_text(node.args[0], module)]
            if targets[0].startswith("."):  # import_module(".mm", __name__)
                level = len(targets[0]) - len(targets[0].lstrip("."))
                anchor = _text(node.args[1], module) if len(node.args) > 1 else module
                targets = [_absolute(targets[0][level:], level, anchor, is_package=True)]
        found += [Import(node.lineno, target, id(node) not in nested) for target in targets]
    return found


def _import_functions(tree):
    """The names under which this module can import by string."""
    names = {"__import__", "importlib.import_module"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "importlib":
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "import_module"}
        if isinstance(node, ast.Import):
            names |= {f"{alias.asname}.import_module" for alias in node.names if alias.name == "importlib"}
    return names


def _name_of(node):
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return None


def _text(node, module):
    """What a string expression is known to begin with; ``__name__`` is known, other variables end it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name) and node.id in ("__name__", "__package__"):
        return module
    if isinstance(node, ast.JoinedStr):
        text = ""
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            known = _text(inner, module)
            if not known:
                return text
            text += known
        return text
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left = _text(node.left, module)
        return left + _text(node.right, module) if left else ""
    return ""


def _absolute(name, level, module, is_package):
    if level == 0:
        return name
    parts = module.split(".")
    up = level - 1 if is_package else level
    return ".".join([*parts[: len(parts) - up], *([name] if name else [])])


# -- the rule -------------------------------------------------------------------------------------------


def room_of(module: str) -> str:
    """The room of a module: ``trimreg.solvers.problem`` is in ``solvers``, ``trimreg`` itself in ``""``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    """What the module imports and may not, a line each."""
    room = room_of(module)
    allowed = MAY_IMPORT.get(room)
    if allowed is None:
        return [f"{module}: the room {room!r} is not in the table of the design"]
    bad = []
    for found in imports_of(source, module, is_package):
        top, _, rest = found.target.partition(".")
        if top != PACKAGE:
            continue
        name = rest.split(".")[0]
        if name in HOME:
            rest = HOME[name] + "." + rest
        if rest.split(".")[0] == room or _is_allowed(rest, allowed, room):
            continue
        bad.append(f"{module}, line {found.line}: imports {found.target}")
    return bad


def _is_allowed(rest, allowed, room):
    if rest.split(".")[0] not in MAY_IMPORT or rest == "":
        # The top level itself (`import trimreg`, its version, or a name made up at run time) opens every
        # room, so only who may import every room may use it.
        return PACKAGE in allowed or room == ""
    return any(rest == entry or rest.startswith(entry + ".") for entry in [*allowed, *SHARED])


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        parts = [PACKAGE, *path.relative_to(SOURCE).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        yield pytest.param(path, name, is_package, id=name)


MODULES = list(modules())


# -- the tests ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "module", "is_package"), MODULES)
def test_imports_follow_the_table(path, module, is_package):
    assert violations(path.read_text(encoding="utf-8"), module, is_package) == []


NETWORK_PACKAGES = (
    "torch", "torchao", "torch_pruning", "lightning", "transformers", "onnx", "onnxruntime",
)  # fmt: skip


def may_use_torch(module: str) -> bool:
    """Whether a module is of the networks' rooms."""
    return module.startswith(("trimreg.nn", "trimreg_reproduction.networks"))


@pytest.mark.parametrize(("path", "module", "is_package"), MODULES)
def test_heavy_packages_are_imported_where_used(path, module, is_package):
    for found in imports_of(path.read_text(encoding="utf-8"), module, is_package):
        package = found.target.split(".")[0]
        assert package not in NETWORK_PACKAGES or may_use_torch(module), (
            f"{module}, line {found.line}: imports {package}; only trimreg.nn and its experiments may"
        )
        assert not (found.at_top and package in ("matplotlib", "dask")), (
            f"{module}, line {found.line}: imports {package} at the top; import it inside the function"
        )


@pytest.mark.parametrize(("path", "module", "is_package"), MODULES)
def test_files_are_read_in_one_sitting(path, module, is_package):
    count = len(path.read_text(encoding="utf-8").splitlines())
    assert count <= LINES_AT_MOST, f"{module} has {count} lines; divide it"


HEAVY = ("numba", "torch", "matplotlib", "dask", "sklearn", "scipy", "numpy", "typer", "rich")


@pytest.mark.parametrize(
    ("module", "light"),
    [
        ("trimreg", HEAVY),
        ("trimreg.plotting", ("numba", "torch", "matplotlib", "dask", "sklearn", "scipy")),
        ("trimreg.solvers", ("numba", "torch", "matplotlib", "dask", "sklearn")),
        ("trimreg.cli", ("numba", "torch", "matplotlib", "dask", "sklearn", "scipy")),
    ],
)
def test_import_is_cheap(module, light):
    code = f"import sys, {module}; print(sorted(set({light!r}) & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


# -- the checker is itself checked ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("trimreg.solvers.problem", "from ..penalties import MCP"),
        ("trimreg.solvers.problem", "from ..penalties.mcp import MCP"),
        ("trimreg.solvers.problem", "from .. import penalties"),
        ("trimreg.solvers.problem", "from trimreg import TrimmedL1"),
        ("trimreg.solvers.problem", "import trimreg.losses"),
        ("trimreg.solvers.problem", "import trimreg"),
        ("trimreg.solvers.problem", "def f():\n    from ..designs import as_design"),
        ("trimreg.solvers.problem", "class A:\n    def f(self):\n        import trimreg.designs.dense"),
        (
            "trimreg.solvers.problem",
            "try:\n    from ..estimators import solve\nexcept ImportError:\n    pass",
        ),
        ("trimreg.solvers.problem", "if TYPE_CHECKING:\n    from ..losses import Quadratic"),
        (
            "trimreg.solvers.problem",
            "from importlib import import_module\nimport_module('trimreg.penalties.mcp')",
        ),
        ("trimreg.solvers.problem", "from importlib import import_module as g\ng('trimreg.losses')"),
        (
            "trimreg.solvers.problem",
            "import importlib\nimportlib.import_module('..penalties', 'trimreg.solvers')",
        ),
        (
            "trimreg.solvers.problem",
            "import importlib as il\nil.import_module('trimreg.' + 'penalties.' + x)",
        ),
        ("trimreg.solvers.problem", "__import__('trimreg.designs')"),
        (
            "trimreg.solvers.problem",
            "from importlib import import_module\nimport_module(f'trimreg.losses.{name}')",
        ),
        ("trimreg.losses.huber", "from ..penalties import L1"),
        ("trimreg.penalties.l1", "from ..losses.base import Loss"),
        ("trimreg.designs.dense", "from ..solvers.problem import Problem"),
        ("trimreg.plotting.paths", "from ..penalties import L1"),
        ("trimreg.datasets.synthetic", "from .. import __version__"),
        ("trimreg.diagnostics.swap", "from ..solvers import run"),
        ("trimreg.estimators.solve", "from ..reports.demo import run"),
        ("trimreg.estimators.solve", "from ..plotting import spread"),
        ("trimreg.reports.demo", "from ..cli import app"),
        ("trimreg.nn.prune", "from ..losses import Quadratic"),
        ("trimreg.attic.old", "x = 1"),
    ],
)
def test_the_checker_fails_on_a_bad_import(module, source):
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source", "is_package"),
    [
        ("trimreg.solvers.problem", "from ..penalties.base import soft_threshold", False),
        ("trimreg.solvers.problem", "from ..penalties import base", False),
        ("trimreg.solvers.problem", "from .driver import Step", False),
        ("trimreg.solvers", "from .driver import Step", True),
        ("trimreg.solvers", "from importlib import import_module\nimport_module(f'{__name__}.{x}')", True),
        ("trimreg.solvers.problem", "import numpy as np\nfrom scipy.linalg import lapack", False),
        ("trimreg.solvers.problem", '"""\n>>> from trimreg.penalties import MCP\n"""', False),
        ("trimreg.diagnostics.swap", "from ..losses import Quadratic", False),
        ("trimreg.estimators.solve", "from ..designs import as_design", False),
        ("trimreg.reports.demo", "from .. import plotting\nfrom .. import __version__", False),
        ("trimreg.reports.demo", "from trimreg import TrimmedLasso", False),
        ("trimreg.cli", "from . import __version__\nfrom .reports import demo", False),
        ("trimreg", "from importlib import import_module\nimport_module(f'{__name__}.{x}')", True),
    ],
)
def test_the_checker_passes_a_good_import(module, source, is_package):
    assert violations(source, module, is_package) == []


def test_the_checker_knows_what_runs_at_import():
    source = "import a\ndef f():\n    import b\nclass C:\n    import c\n"
    assert {(i.target, i.at_top) for i in imports_of(source, "trimreg.x")} == {
        ("a", True),
        ("b", False),
        ("c", True),
    }
