"""Pages that show a fitted model, and the charts on them.

The names are imported when they are first asked for.
"""

from __future__ import annotations

from .._lazy import lazy

_WHERE = {
    "Chart": ".charts",
    "chart_json": ".charts",
    "svg_image": ".pages",
    "table": ".pages",
    "write_model_report": ".model",
    "write_page": ".pages",
}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazy(__name__, _WHERE)
