"""Who may import whom, read from the source: imports at the top, inside functions, and names in strings.

The table is the design's. A room may always import itself. ``solvers`` may import the base classes
(``designs.base``, ``losses.base``, ``penalties.base``) and no concrete design, loss or penalty.
"""

import ast
import re
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

import trimreg
from trimreg.losses import LOSSES
from trimreg.penalties import PENALTIES

SOURCE = Path(trimreg.__file__).parent
PACKAGE = "trimreg"
REPRODUCTION = SOURCE.parent / "trimreg_reproduction"
LINES_AT_MOST = 500
MODULES_AT_MOST = 12  # in a folder, beside its __init__.py

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
    "inference": [*BELOW_ESTIMATORS, "estimators", "selection"],
    "graphs": [*BELOW_ESTIMATORS, "estimators", "selection", "plotting"],
    "nn": ["penalties"],
}
MAY_IMPORT["reports"] = [*MAY_IMPORT, PACKAGE]
MAY_IMPORT["cli"] = [*MAY_IMPORT, PACKAGE]
MAY_IMPORT["__main__"] = ["cli"]
# the public names
MAY_IMPORT[""] = [room for room in MAY_IMPORT if room not in ("cli", "reports", "__main__")]

#: Packages that also offer names of the graphs' wing, and do nothing but name them.
FACADES = {"trimreg.plotting": "graphs", "trimreg.diagnostics": "graphs", "trimreg.selection": "graphs"}

#: Rooms below that must not know a concrete loss or penalty, not even by its name.
NAMELESS = {"designs": {*LOSSES, *PENALTIES}, "solvers": {*LOSSES, *PENALTIES}}

#: The only modules behind the public names that the paper's experiments use: kernels for millions of small
#: problems, layers of many networks at once, and what any command needs.
INTERNALS_OF_REPRODUCTION = {
    "_files", "cli.common", "diagnostics.conditions", "graphs.mm.kernels", "losses.base", "nn.layers.bayes",
    "nn.layers.common", "nn.layers.gates", "nn.penalty.rules", "penalties.simplex", "plotting.style",
    "selection.progress", "solvers.first_order.arrays", "solvers.first_order.batch",
    "solvers.first_order.bcd", "solvers.lapack", "solvers.mm.kernels",
}  # fmt: skip

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
    """What the module imports or names and may not, one line each."""
    room = room_of(module)
    allowed = MAY_IMPORT.get(room)
    if allowed is None:
        return [f"{module}: the room {room!r} is not in the table of the design"]
    tree = ast.parse(source)
    found = {(one.line, one.target) for one in imports_of(source, module, is_package)}
    found |= {(line, target) for line, target in modules_named(tree, module, is_package)}
    bad = []
    for line, target in sorted(found):
        top, _, rest = target.partition(".")
        if top != PACKAGE:
            continue
        name = rest.split(".")[0]
        if name in HOME:
            rest = HOME[name] + "." + rest
        home = rest.split(".")[0]
        if home == room or _is_allowed(rest, allowed, room) or FACADES.get(module) == home:
            continue
        bad.append(f"{module}, line {line}: imports or names {target}")
    for line, text in _strings(tree):
        if text in NAMELESS.get(room, ()):
            bad.append(f"{module}, line {line}: names {text!r}, which is not of this room")
    for node in ast.walk(tree):
        if _name_of(node) in ("sys._getframe", "inspect.stack", "inspect.currentframe"):
            bad.append(f"{module}, line {node.lineno}: reads the call stack")
    return bad


def modules_named(tree, module, is_package):
    """Dotted names of our modules in strings: whole, relative to the package, or behind a variable."""
    rooms = "|".join(room for room in MAY_IMPORT if room and not room.startswith("_"))
    for line, text in _strings(tree):
        if re.match(rf"{PACKAGE}\.({rooms})(\.\w+)*$", text):
            yield line, text
        elif re.match(r"\.+\w[\w.]*$", text) and text.startswith(".."):
            level = len(text) - len(text.lstrip("."))
            yield line, _absolute(text[level:], level, module, is_package)
        elif re.match(rf"\.({rooms})(\.\w+)*$", text) and not (is_package and module == PACKAGE):
            yield line, f"{PACKAGE}{text}" if _is_room_of_top(text, module, is_package) else f"{module}{text}"


def _is_room_of_top(text, module, is_package):
    """Whether ``".selection"`` can only mean the room: there is no module of that name beside this one."""
    folder = (
        SOURCE.joinpath(*module.split(".")[1:]) if is_package else SOURCE.joinpath(*module.split(".")[1:-1])
    )
    own = folder / text.split(".")[1]
    return not (own.is_dir() or own.with_suffix(".py").exists())


def _strings(tree):
    """Every string of a module that is no docstring, with its line."""
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


def _is_allowed(rest, allowed, room):
    if rest.split(".")[0] not in MAY_IMPORT or rest == "":
        # The top level itself (`import trimreg`, its version, or a name made up at run time) opens every
        # room, so only who may import every room may use it.
        return PACKAGE in allowed or room == ""
    return any(rest == entry or rest.startswith(entry + ".") for entry in [*allowed, *SHARED])


def modules_below(folder: Path):
    """Path, dotted name and whether it is a package, for every module below a package's folder."""
    for path in sorted(folder.rglob("*.py")):
        parts = [folder.name, *path.relative_to(folder).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        yield path, ".".join(parts[:-1] if is_package else parts), is_package


MODULES = list(modules_below(SOURCE))
EVERY_MODULE = [*MODULES, *modules_below(REPRODUCTION)]


# -- the tests ------------------------------------------------------------------------------------------


def test_imports_follow_the_table():
    bad = [line for path, *names in MODULES for line in violations(path.read_text(encoding="utf-8"), *names)]
    assert bad == []


def test_the_experiments_use_public_names():
    """They may import ``trimreg`` and names that its subpackages list; internals are few and listed."""
    used = set()
    for path, module, is_package in modules_below(REPRODUCTION):
        for found in imports_of(path.read_text(encoding="utf-8"), module, is_package):
            top, *rest = found.target.split(".")
            if top == PACKAGE and not _is_public(rest):
                used.add(".".join(rest if SOURCE.joinpath(*rest).with_suffix(".py").exists() else rest[:-1]))
    assert used == INTERNALS_OF_REPRODUCTION


def _is_public(rest: list[str]) -> bool:
    """Whether a dotted name below ``trimreg`` is one of its names, or one that a subpackage lists."""
    if len(rest) <= 1:
        return not rest or rest[0] in (*trimreg.__all__, "reports")
    package = import_module(f"{PACKAGE}.{rest[0]}")
    return len(rest) == 2 and rest[1] in getattr(package, "__all__", ())


NETWORK_PACKAGES = (
    "torch", "torchao", "torch_pruning", "lightning", "transformers", "onnx", "onnxruntime",
)  # fmt: skip


def may_use_torch(module: str) -> bool:
    """Whether a module is of the networks' rooms."""
    return module.startswith(("trimreg.nn", "trimreg_reproduction.networks"))


def test_heavy_packages_are_imported_where_used():
    bad = []
    for path, module, is_package in EVERY_MODULE:
        for found in imports_of(path.read_text(encoding="utf-8"), module, is_package):
            package = found.target.split(".")[0]
            if package in NETWORK_PACKAGES and not may_use_torch(module):
                bad.append(f"{module}, line {found.line}: imports {package}; only networks may")
            # The modules of Dask's rows are imported when X is a Dask collection.
            of_dask = package == "dask" and not module.startswith("trimreg.designs.far.dask")
            if found.at_top and (package == "matplotlib" or of_dask):
                bad.append(f"{module}, line {found.line}: imports {package} at the top, not in a function")
    assert bad == []


def test_files_are_read_in_one_sitting():
    counts = {module: len(path.read_text(encoding="utf-8").splitlines()) for path, module, _ in EVERY_MODULE}
    assert {module: count for module, count in counts.items() if count > LINES_AT_MOST} == {}


def test_folders_are_seen_at_a_glance():
    siblings = Counter(path.parent for path, *_ in EVERY_MODULE if path.name != "__init__.py")
    assert {str(folder): count for folder, count in siblings.items() if count > MODULES_AT_MOST} == {}


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
        ("trimreg.solvers.driver", "MANY = ('joblib', f'{package}.selection')"),
        ("trimreg.solvers.driver", "MANY = 'trimreg.selection'"),
        ("trimreg.solvers.driver", "import sys\nframe = sys._getframe(1)"),
        ("trimreg.designs.far.disk", "room = 3 if loss.name == 'cox' else 1"),
        ("trimreg.estimators.solve", "WHERE = {'network': '..graphs.plots'}"),
        ("trimreg.losses.huber", "from ..penalties import L1"),
        ("trimreg.penalties.l1", "from ..losses.base import Loss"),
        ("trimreg.designs.dense", "from ..solvers.problem import Problem"),
        ("trimreg.plotting.paths", "from ..penalties import L1"),
        ("trimreg.datasets.synthetic", "from .. import __version__"),
        ("trimreg.diagnostics.swap", "from ..solvers import run"),
        ("trimreg.estimators.solve", "from ..reports.model import diagnostics"),
        ("trimreg.estimators.solve", "from ..plotting import spread"),
        ("trimreg.reports.model", "from ..cli import app"),
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
        ("trimreg.diagnostics", "_WHERE = {'certify_graph': '..graphs.diagnostics.certificate'}", True),
        ("trimreg.solvers.driver", "message = 'see the selection of features. trimreg is fine here'", False),
        ("trimreg.estimators.solve", "loss = 'quadratic'", False),
        ("trimreg.estimators.solve", "from ..designs import as_design", False),
        ("trimreg.reports.model", "from .. import plotting\nfrom .. import __version__", False),
        ("trimreg.reports.model", "from trimreg import TrimmedLasso", False),
        ("trimreg.cli", "from . import __version__\nfrom .reports import model", False),
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
