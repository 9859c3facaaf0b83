"""Look at the built site as a reader would: ``python docs/check.py site/VERSION``.

Every link leads to a page and a place that are there, every picture is there. Then a real browser, if there
is one, opens every page: no complaint in the console, nothing asked from elsewhere, no horizontal scroll on a
telephone, light and dark; the search finds a class; code can be copied. Prints what was counted.
"""

from __future__ import annotations

import functools
import html.parser
import http.server
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import unquote, urldefrag

ROOT = Path(__file__).resolve().parent.parent
NARROW, WIDE = 390, 1280  # pixels: a telephone, a laptop
HEAVIEST = 1_500_000  # bytes of one page with all it needs
INTERACTIVE = {"report.html"}  # pages with charts that answer to the mouse


class Page(html.parser.HTMLParser):
    """The links, sources and names of places of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.sources: list[str] = []
        self.places: set[str] = set()
        self.headings = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.places |= {attributes[key] for key in ("id", "name") if attributes.get(key)}
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])
        if tag in ("img", "script", "source") and attributes.get("src"):
            self.sources.append(attributes["src"])
        if tag == "link" and attributes.get("href") and attributes.get("rel") != "canonical":
            self.sources.append(attributes["href"])
        self.headings += tag == "h1"


def outside(address: str) -> bool:
    """Whether an address is not a file of the site."""
    return address.startswith(("http:", "https:", "mailto:", "data:", "javascript:"))


def broken(site: Path, pages: dict[Path, Page]) -> list[str]:
    """Links and sources of the pages that lead nowhere."""
    found = []
    for path, page in pages.items():
        for address in (*page.links, *page.sources):
            if (
                outside(address) or path.name == "404.html"
            ):  # it stands at any address, so its links are absolute
                continue
            file, place = urldefrag(address)
            target = (path.parent / unquote(file.partition("?")[0])).resolve() if file else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                found.append(f"{path.relative_to(site)}: {address}")
            elif place and target in pages and unquote(place) not in pages[target].places:
                found.append(f"{path.relative_to(site)}: no place {address}")
    return found


def weight(path: Path, page: Page) -> int:
    """Bytes of a page with its pictures, scripts and styles."""
    files = {(path.parent / unquote(a.partition("?")[0])).resolve() for a in page.sources if not outside(a)}
    return path.stat().st_size + sum(file.stat().st_size for file in files if file.is_file())


def seen(site: Path, pages: dict[Path, Page]) -> list[str]:
    """What a reader with a browser would complain of."""
    from browser import Browser

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}/"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(profile)
        try:
            return [*each_page(browser, site, pages, home), *search_and_copy(browser, home)]
        finally:
            browser.close()
            server.shutdown()


def each_page(browser, site, pages, home) -> list[str]:
    """Complaints about single pages."""
    found = []
    for path in pages:
        name = path.relative_to(site).as_posix()
        for theme, width in (("light", NARROW), ("dark", WIDE)):
            browser.ask(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=900,
                deviceScaleFactor=1,
                mobile=False,
            )
            features = [{"name": "prefers-color-scheme", "value": theme}]
            browser.ask("Emulation.setEmulatedMedia", features=features)
            browser.open(home + name)
            found += [f"{name}: {complaint}" for complaint in browser.complaints(home)]
            scroll = browser.run("document.scrollingElement.scrollWidth")
            if scroll > width:
                found.append(f"{name}: {scroll} pixels wide on a screen of {width}")
            missing = browser.run(
                "[...document.images].filter(i => i.loading !== 'lazy' && i.naturalWidth === 0)"
                ".map(i => i.src)"
            )
            found += [f"{name}: no picture {source}" for source in missing]
            if name not in INTERACTIVE:
                shade = browser.run(
                    "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3)"
                    ".reduce((a, b) => a + Number(b), 0)"
                )
                if (shade < 384) != (theme == "dark"):
                    found.append(f"{name}: its background is not {theme}")
    return found


def search_and_copy(browser, home) -> list[str]:
    """Complaints about the search and the button that copies code."""
    found = []
    browser.open(home + "search.html?q=TrimmedLasso")
    browser.wait("document.querySelectorAll('#search-results li a').length > 0")
    hits = browser.run("[...document.querySelectorAll('#search-results li a')].map(a => a.href)")
    if not any("trimreg.TrimmedLasso.html" in hit for hit in hits):
        found.append(f"the search for TrimmedLasso does not find its page, but {hits[:5]}")
    browser.ask("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.open(home + "index.html")
    browser.ask("Page.bringToFront")
    browser.wait("document.querySelectorAll('button.copybtn').length > 1")
    browser.run("document.querySelectorAll('button.copybtn')[1].click()")
    browser.wait("document.querySelector('button.copybtn.success')")
    return found


def main(folder: str) -> int:
    site = Path(folder).resolve()
    pages = {path: Page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts}
    found = broken(site, pages)
    found += [f"{p.relative_to(site)}: no heading" for p, page in pages.items() if not page.headings]
    heavy = {path: weight(path, page) for path, page in pages.items() if path.name not in INTERACTIVE}
    found += [f"{p.relative_to(site)}: {size} bytes" for p, size in heavy.items() if size > HEAVIEST]
    for name in ("sitemap.xml", "llms.txt", "404.html", "objects.inv", "searchindex.js"):
        found += [] if (site / name).exists() else [f"{name} is missing"]
    sys.path.insert(0, str(ROOT / "tests" / "reproduction"))
    from browser import CHROMIUM

    if CHROMIUM:
        found += seen(site, pages)
    links = sum(len(page.links) for page in pages.values())
    heaviest = max(heavy, key=lambda path: heavy[path])
    print(f"{len(pages)} pages, {links} links, {'in a browser' if CHROMIUM else 'no browser here'};", end=" ")
    print(f"the heaviest is {heaviest.relative_to(site)} with {heavy[heaviest] / 1e6:.2f} MB")
    for complaint in found:
        print("  ", complaint)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
