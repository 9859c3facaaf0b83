"""Public names that are imported when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, where: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for a package whose public names stand in other modules.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    where : mapping of str to str
        The module of every name, relative to the package (``".solve"``). A name that is mapped to itself
        with a dot in front (``"nn": ".nn"``) is that module.

    Examples
    --------
    >>> from trimreg._lazy import lazy
    >>> get, names = lazy("trimreg.penalties", {"MCP": ".mcp"})
    >>> get("MCP").__name__, names()
    ('MCP', ['MCP'])
    """

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(where[name], package)
        return module if where[name] == f".{name}" else getattr(module, name)

    return get, lambda: sorted(where)
