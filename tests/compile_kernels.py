"""Small fits that compile the loops of the library, so that the workers of the test run find them on disk.

``make test`` runs this beside the installation of the test tools, in two processes. Nothing depends on it: a
loop that is not on disk is compiled where it is first called.
"""

from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from trimreg import (
    TrimmedGraphicalLasso,
    TrimmedGroupLasso,
    TrimmedLasso,
    TrimmedLogisticRegression,
    certify,
)
from trimreg.datasets import make_ar1
from trimreg_reproduction.registry import get_experiment

ALPHAS = ("exact", 0.1)


def graphs(X, y) -> None:
    for alpha in ALPHAS:
        TrimmedGraphicalLasso(h=10, alpha=alpha).fit(X[:, :12])


def replicates(X, y) -> None:
    simulation = get_experiment("fig2")
    simulation.run(simulation.cells("quick")[0])


def fits(X, y) -> None:
    for alpha in ALPHAS:
        TrimmedLasso(h=5, alpha=alpha).fit(X, y)
        TrimmedLogisticRegression(h=5, alpha=alpha, l2=0.1).fit(X, y > 0)
        TrimmedGroupLasso([range(i, i + 4) for i in range(0, 80, 4)], h=3, alpha=alpha).fit(X, y)


def certificates(X, y) -> None:
    for alpha in ALPHAS:
        certify(X, y, h=5, alpha=alpha, l2=0.1, time_limit=5)


def run(work, X, y) -> None:
    work(X, y)


def main() -> None:
    data = make_ar1(n_samples=60, n_features=80, n_nonzero=5, rho=0.5, snr=5, random_state=0)
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(run, (graphs, fits, replicates, certificates), repeat(data.X), repeat(data.y)))


if __name__ == "__main__":
    main()
