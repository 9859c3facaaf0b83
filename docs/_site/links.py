"""Links of the guides to files outside of this folder go to the page that shows the file.

The guides are also read as files, so they link to ``../../benchmarks/RESULTS.md`` and not to its page here.
"""

from __future__ import annotations

import re

PAGES = {
    "benchmarks/RESULTS.md": "benchmarks.md",
    "results/README.md": "paper.md",
    "CONTRIBUTING.md": "contribute.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
}


def relink(app, name: str, source: list[str]) -> None:
    """Replace the links of one page."""
    up = "../" * name.count("/")
    for file, page in PAGES.items():
        source[0] = re.sub(rf"\]\((\.\./)+{re.escape(file)}\)", f"]({up}{page})", source[0])


def setup(app):
    app.connect("source-read", relink)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
