"""Pictures of the proteins of Sachs et al.: precision and recall of the known edges, and the network.

``python docs/guide/pictures/sachs.py`` draws ``sachs.png`` and ``sachs_network.png`` beside this file, or in
another folder that is given. The data are looked for as :func:`trimreg.datasets.load_sachs` says. The graphs
are those of ``benchmarks/sachs.py``.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from benchmarks import sachs  # noqa: E402

from trimreg import TrimmedL1, solve_graphical  # noqa: E402
from trimreg.datasets import load_sachs  # noqa: E402
from trimreg.plotting import network, precision_recall  # noqa: E402

SIZES = (1, 2, 3, 5, 7, 10, 12, 15, 18, 21, 25, 30)


def draw_curves(graphs, truth):
    """Precision over recall, one line per method; marks are filled at the number of known edges."""
    sizes, precision, recall = {}, {}, {}
    for name, by_size in reversed(graphs.items()):  # the trimmed fits on top
        chosen = {int(by_size[k].sum()): by_size[k] for k in SIZES}
        sizes[name] = list(chosen)
        found = [sachs.scores(graph, truth) for graph in chosen.values()]
        precision[name], recall[name] = ([row[column] for row in found] for column in (0, 1))
    figure = Figure(figsize=(7.0, 5.6), layout="constrained")
    precision_recall(sizes, precision, recall, mark=int(truth.sum()), ax=figure.subplots())
    return figure


def draw_network(R, data):
    """The trimmed graph with as many edges as are known."""
    fit = solve_graphical(R, penalty=TrimmedL1(len(data.skeleton)), alpha="exact")
    scale = np.sqrt(np.diagonal(fit.precision))
    partial = -fit.precision / np.multiply.outer(scale, scale)
    np.fill_diagonal(partial, 1.0)
    figure = Figure(figsize=(6.4, 6.4), layout="constrained")
    network(partial, data.feature_names, truth=data.skeleton.tolist(), ax=figure.subplots())
    return figure


def main(folder=HERE, n_alphas=sachs.N_ALPHAS):
    data = load_sachs()
    R = sachs.correlations(data.X, sachs.MAIN)
    graphs = sachs.graphs_by_size(R, n_alphas)
    draw_curves(graphs, sachs.known_pairs(data)).savefig(Path(folder) / "sachs.png", dpi=110)
    draw_network(R, data).savefig(Path(folder) / "sachs_network.png", dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
