"""The picture of the diamond graph: probability of exact support recovery over the fraction penalized.

``python docs/guide/pictures/diamond.py`` draws ``diamond.png`` beside this file. Another path may be given
for the picture, and a number of replicates.
"""

import sys
from pathlib import Path

from trimreg_reproduction.graphs.diamond import recovery
from trimreg_reproduction.graphs.figure import TITLES, draw_tables

HERE = Path(__file__).resolve().parent


def main(picture=HERE / "diamond.png", replicates=1000):
    tables = [recovery(rho, replicates=int(replicates)) for rho in TITLES]
    draw_tables(tables).savefig(picture, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
