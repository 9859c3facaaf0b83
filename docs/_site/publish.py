"""What a static host needs around the pages: 404 page, sitemap, text for language models, the start page.

The site is built into ``site/VERSION``. Beside that folder stand ``index.html``, which leads to it, and
``404.html``.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

OF_SEARCH = re.compile(r'\s*<script src="[^"]*(searchtools|language_data|searchindex)\.js[^"]*"></script>')
LEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>trimreg</title>
<meta http-equiv="refresh" content="0; url={version}/"><link rel="canonical" href="{version}/"></head>
<body><p><a href="{version}/">trimreg {version}</a></p></body></html>
"""
MISSING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Not found: trimreg</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body {{ font: 1.1rem/1.5 sans-serif; max-width: 36rem; margin: 15vh auto; padding: 0 1rem;
background: Canvas; color: CanvasText; color-scheme: light dark }}</style></head>
<body><h1>There is no such page</h1><p>It may have moved with a new version. The site begins at
<a href="/{version}/">trimreg {version}</a>; its search finds every public name.</p></body></html>
"""


def finish(app, exception) -> None:
    """Write the files beside and among the pages."""
    if exception is not None or app.builder.name != "html":
        return
    out, version = Path(app.outdir), app.config.version
    pages = sorted(app.env.found_docs)
    base = app.config.html_baseurl
    places = "\n".join(f"<url><loc>{html.escape(base + page)}.html</loc></url>" for page in pages)
    (out / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{places}\n</urlset>\n'
    )
    (out / "llms.txt").write_text(_for_models(app, pages, base))
    (out / "404.html").write_text(MISSING.format(version=version))
    # The same page that `trimreg report` writes of the stored results, with charts that answer to the mouse.
    from trimreg_reproduction.exported import Exported
    from trimreg_reproduction.report import write_report

    write_report(Exported(Path(app.srcdir).parent / "results"), out / "report.html")
    for page in out.rglob(
        "*.html"
    ):  # the theme loads the index of the search everywhere, for a search as one types
        text = page.read_text(encoding="utf-8")
        if page.name != "search.html" and "searchindex.js" in text:
            page.write_text(OF_SEARCH.sub("", text), encoding="utf-8")
    for file in (out / "_static").rglob("*.map"):  # for those who debug the theme
        file.unlink()
    if out.name == version:
        (out.parent / "index.html").write_text(LEAD.format(version=version))
        (out.parent / "404.html").write_text(MISSING.format(version=version))


def _for_models(app, pages, base) -> str:
    """The pages with their titles, in the format of llmstxt.org."""
    lines = [
        "# trimreg", "",
        "> Sparse regression, graphs and networks with a given number of coefficients, edges or neurons: "
        "penalize everything but the h largest. Python; scikit-learn's, SciPy's and PyTorch's world.", "",
    ]  # fmt: skip
    parts = {
        "": "Start",
        "guide": "User guide",
        "gallery": "Gallery",
        "api": "API",
        "contributing": "Contributing",
    }
    for part, title in parts.items():
        mine = [page for page in pages if (page.partition("/")[0] if "/" in page else "") == part]
        mine = [
            page for page in mine if ("/sg_execution" not in page and "/names/" not in page) or part == "api"
        ]
        lines += [f"## {title}", ""]
        lines += [f"- [{app.env.titles[page].astext()}]({base}{page}.html)" for page in mine] + [""]
    return "\n".join(lines)


def setup(app):
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
