"""Real data sets that the library does not ship: read from a folder of the user, never downloaded.

A data set ``NAME`` is the file ``NAME.npz``. It is searched in the folder ``TRIMREG_DATA``, then in the
cache: the folder ``TRIMREG_CACHE``, or ``trimreg`` in the cache folder of the system (``~/.cache`` on Linux).
The public copies of these data move, so there is no fixed address; each function names the source of its data
and the contents of its file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .diabetes import NamedData

FOLDER = "TRIMREG_DATA"
CACHE = "TRIMREG_CACHE"


class ProteinNetwork(NamedTuple):
    """Protein signals and the known edges between them.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
    feature_names : list of str
    edges : ndarray of int, of shape (n_edges, 2)
        Known directed edges, from the first column to the second.
    skeleton : ndarray of int, of shape (n_pairs, 2)
        The same without direction: sorted pairs i < j without repetition.
    """

    X: np.ndarray
    feature_names: list[str]
    edges: np.ndarray
    skeleton: np.ndarray


def load_sachs() -> ProteinNetwork:
    """Flow cytometry of 11 phosphorylated proteins and lipids in 7466 cells, with 18 known directed edges.

    The cells of all conditions are pooled. The raw intensities are positive and skewed, from 1 to about
    9000: take logarithms, or a nonparanormal transform, before a Gaussian model.

    The file ``sachs.npz`` holds ``X`` (7466 x 11), ``feature_names`` (11 strings) and ``edges`` (18 x 2
    strings, each a name: from, to).

    Returns
    -------
    ProteinNetwork

    References
    ----------
    Sachs, Perez, Pe'er, Lauffenburger and Nolan (2005). Causal protein-signaling networks derived from
    multiparameter single-cell data. Science 308, 523-529; the data are in its supporting material.

    Examples
    --------
    >>> from trimreg.datasets import load_sachs
    >>> X, names, edges, skeleton = load_sachs()  # doctest: +SKIP
    >>> X.shape, edges.shape, skeleton.shape  # doctest: +SKIP
    ((7466, 11), (18, 2), (18, 2))
    """
    holds = "X (7466 x 11 numbers), feature_names (11 strings) and edges (18 x 2 of those names)"
    source = "Sachs et al. (2005), Science 308, 523-529, supporting material"
    path, stored = _read("sachs", ("X", "feature_names", "edges"), holds, source)
    X = _matrix(path, stored["X"], (7466, 11))
    names = _names(path, stored["feature_names"], 11)
    edges = _edges(path, stored["edges"], names, 18)
    return ProteinNetwork(X, names, edges, np.unique(np.sort(edges, axis=1), axis=0))


def load_riboflavin() -> NamedData:
    """Production of riboflavin by Bacillus subtilis: 71 samples, 4088 genes, regression.

    ``X`` are logarithms of expression levels, ``y`` the logarithm of the production rate. The file
    ``riboflavin.npz`` holds ``X`` (71 x 4088), ``y`` (71 numbers) and ``feature_names`` (4088 strings).

    Returns
    -------
    NamedData

    References
    ----------
    Buehlmann, Kalisch and Meier (2014). High-dimensional statistics with a view toward applications in
    biology. Annual Review of Statistics and Its Application 1, 255-278; the data are in its supplement.
    """
    holds = "X (71 x 4088 numbers), y (71 numbers) and feature_names (4088 strings)"
    source = "Buehlmann, Kalisch and Meier (2014), Annual Review of Statistics 1, 255-278, supplement"
    path, stored = _read("riboflavin", ("X", "y", "feature_names"), holds, source)
    X = _matrix(path, stored["X"], (71, 4088))
    y = _matrix(path, stored["y"], (71,), "y")
    return NamedData(X, y, _names(path, stored["feature_names"], 4088))


def load_colon() -> NamedData:
    """Gene expression of colon tissue: 62 samples, 2000 genes, 40 tumors and 22 normal.

    ``X`` are positive intensities: take logarithms. ``y`` are the strings ``"n"`` (normal) and ``"t"``
    (tumor). The file ``colon.npz`` holds ``X`` (62 x 2000) and ``y`` (62 strings); the genes are named
    ``"gene0"`` to ``"gene1999"`` unless the file has ``feature_names``.

    Returns
    -------
    NamedData

    References
    ----------
    Alon, Barkai, Notterman, Gish, Ybarra, Mack and Levine (1999). Broad patterns of gene expression revealed
    by clustering analysis of tumor and normal colon tissues probed by oligonucleotide arrays. Proceedings of
    the National Academy of Sciences 96, 6745-6750.
    """
    holds = "X (62 x 2000 positive numbers) and y (62 strings, 'n' or 't')"
    source = "Alon et al. (1999), Proceedings of the National Academy of Sciences 96, 6745-6750"
    path, stored = _read("colon", ("X", "y"), holds, source)
    X = _matrix(path, stored["X"], (62, 2000))
    if not (X > 0).all():
        raise ValueError(f"X in {path} must be positive; got {X.min():g}")
    y = np.asarray(stored["y"]).astype(str)
    if y.shape != (62,) or set(y.tolist()) != {"n", "t"}:
        raise ValueError(f"y in {path} must be 62 strings 'n' or 't', with both; got shape {y.shape}")
    names = stored.get("feature_names", np.array([f"gene{j}" for j in range(2000)]))
    return NamedData(X, y, _names(path, names, 2000))


# -- where files are ----------------------------------------------------------------------------------------


def data_folders() -> list[Path]:
    """The folders in which data are searched, in this order."""
    named = os.environ.get(FOLDER)
    return [*([Path(named)] if named else []), cache_folder()]


def cache_folder() -> Path:
    """``$TRIMREG_CACHE``, or ``trimreg`` in the cache folder of the system."""
    named = os.environ.get(CACHE)
    if named:
        return Path(named)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "trimreg"


def _read(name, keys, holds, source):
    """The path of the file and its arrays; an error with instructions if it is missing."""
    folders = data_folders()
    path = next((folder / f"{name}.npz" for folder in folders if (folder / f"{name}.npz").is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"{name}.npz is in none of: {', '.join(str(folder) for folder in folders)}. Set the environment "
            f"variable {FOLDER} to a folder that contains it. The file must hold {holds}. Source: {source}"
        )
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            stored = {key: archive[key] for key in archive.files}
    except Exception as error:  # each kind of damage raises its own type of error
        raise ValueError(f"{path} cannot be read as an npz archive: {error}") from error
    missing = [key for key in keys if key not in stored]
    if missing:
        raise ValueError(f"{path} has no array {missing[0]!r}; it must hold {holds}")
    return path, stored


# -- what is in them ----------------------------------------------------------------------------------------


def _matrix(path, values, shape, key="X"):
    """The finite numbers of that shape in float64."""
    if values.shape != shape:
        raise ValueError(f"{key} in {path} must have shape {shape}; got {values.shape}")
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{key} in {path} must be numeric; got {values.dtype}")
    values = np.ascontiguousarray(values, dtype=float)
    if not np.isfinite(values).all():
        raise ValueError(f"{key} in {path} contains NaN or inf")
    return values


def _names(path, names, count):
    names = [str(name) for name in np.ravel(names)]
    if len(names) != count or len(set(names)) != count or not all(names):
        raise ValueError(f"feature_names in {path} must be {count} different names; got {len(names)}")
    return names


def _edges(path, pairs, names, count):
    """Pairs of names as pairs of indices."""
    if pairs.shape != (count, 2):
        raise ValueError(f"edges in {path} must have shape ({count}, 2); got {pairs.shape}")
    index = {name: j for j, name in enumerate(names)}
    unknown = [str(name) for name in pairs.flat if str(name) not in index]
    if unknown:
        raise ValueError(f"edges in {path} must consist of feature_names; got {unknown[0]!r}")
    edges = np.array([[index[str(start)], index[str(end)]] for start, end in pairs])
    if (edges[:, 0] == edges[:, 1]).any():
        raise ValueError(f"edges in {path} must connect different features")
    return edges
