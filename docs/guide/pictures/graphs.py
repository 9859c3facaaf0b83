"""The picture of the page on graphs.

``python docs/guide/pictures/graphs.py`` fits the first model of the page and draws ``graphs.png`` beside this
file, or in another folder that is given.
"""

import re
import sys
from pathlib import Path

from matplotlib.figure import Figure

from trimreg.plotting import network

HERE = Path(__file__).resolve().parent


def page_model():
    """The first model of the page."""
    text = (HERE.parent / "graphs.md").read_text(encoding="utf-8")
    code = re.search(r"^```python\n(.*?)^for edge", text, flags=re.DOTALL | re.MULTILINE)[1]
    names = {}
    exec(code, names)
    return names["model"]


def main(folder=HERE):
    figure = Figure(figsize=(8.0, 5.4), layout="constrained")
    network(page_model(), ax=figure.subplots())
    figure.savefig(Path(folder) / "graphs.png", dpi=90)


if __name__ == "__main__":
    main(*sys.argv[1:])
