"""Loaders of real data: where they look, what they refuse; and the data themselves where they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from trimreg.datasets import load_colon, load_riboflavin, load_sachs
from trimreg.datasets.real import cache_folder, data_folders

FOLDER = os.environ.get("TRIMREG_DATA")
LOADERS = {"sachs": load_sachs, "riboflavin": load_riboflavin, "colon": load_colon}


def made_up(name):
    """Arrays of the right shapes."""
    rng = np.random.default_rng(0)
    if name == "sachs":
        names = np.array([f"protein{j}" for j in range(11)])
        pairs = [(0, 1), (1, 0), (2, 1), *((3, j) for j in range(4, 11)), *((j, 2) for j in range(3, 11))]
        return {
            "X": rng.exponential(size=(7466, 11)),
            "feature_names": names,
            "edges": names[np.array(pairs)],
        }
    if name == "riboflavin":
        return {
            "X": rng.standard_normal((71, 4088)).astype(np.float32),
            "y": rng.standard_normal(71),
            "feature_names": np.array([f"g{j}" for j in range(4088)]),
        }
    return {"X": rng.exponential(size=(62, 2000)), "y": np.array(["t", "n"] * 31)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that ``TRIMREG_DATA`` names, and no other place to look."""
    monkeypatch.setenv("TRIMREG_DATA", str(tmp_path))
    monkeypatch.setenv("TRIMREG_CACHE", str(tmp_path / "cache"))
    return tmp_path


def write(folder, name, **changes):
    arrays = {**made_up(name), **changes}
    folder.mkdir(exist_ok=True)
    np.savez(folder / f"{name}.npz", **{key: value for key, value in arrays.items() if value is not None})
    return arrays


def test_sachs_edges_are_indices(folder):
    stored = write(folder, "sachs")
    data = load_sachs()
    assert np.array_equal(data.X, stored["X"])
    assert data.X.dtype == np.float64
    assert data.feature_names == [f"protein{j}" for j in range(11)]
    assert data.edges.shape == (18, 2)
    assert data.edges[:3].tolist() == [[0, 1], [1, 0], [2, 1]]  # directed, in the order of the file
    assert data.skeleton[:2].tolist() == [[0, 1], [1, 2]]
    assert (data.skeleton[:, 0] < data.skeleton[:, 1]).all()
    assert len(data.skeleton) == len({frozenset(pair) for pair in data.edges.tolist()}) == 17


def test_riboflavin_and_colon(folder):
    stored = write(folder, "riboflavin")
    X, y, names = load_riboflavin()
    assert X.dtype == y.dtype == np.float64
    assert np.array_equal(X, stored["X"])
    assert np.array_equal(y, stored["y"])
    assert names[-1] == "g4087"
    stored = write(folder, "colon")
    X, y, names = load_colon()
    assert np.array_equal(X, stored["X"])
    assert y.tolist() == ["t", "n"] * 31
    assert names[1999] == "gene1999"
    write(folder, "colon", feature_names=np.array([f"EST{j}" for j in range(2000)]))
    assert load_colon().feature_names[3] == "EST3"


@pytest.mark.parametrize("name", LOADERS)
def test_a_missing_file_says_what_to_do(folder, name):
    with pytest.raises(FileNotFoundError) as caught:
        LOADERS[name]()
    message = str(caught.value)
    for part in (
        f"{name}.npz",
        "TRIMREG_DATA",
        str(folder),
        str(folder / "cache"),
        "must hold X",
        "Source: ",
    ):
        assert part in message


def test_the_folder_comes_before_the_cache(folder, monkeypatch):
    write(folder / "cache", "colon", y=np.array(["n", "t"] * 31))
    assert load_colon().y[0] == "n"  # not in the folder: the cache
    write(folder, "colon")
    assert load_colon().y[0] == "t"
    monkeypatch.delenv("TRIMREG_DATA")
    assert load_colon().y[0] == "n"
    assert data_folders() == [folder / "cache"]


@pytest.mark.parametrize(
    ("platform", "variable", "value", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "/c", "/c/trimreg"),
        ("linux", "XDG_CACHE_HOME", "", "~/.cache/trimreg"),
        ("darwin", "XDG_CACHE_HOME", "/c", "~/Library/Caches/trimreg"),
        ("win32", "LOCALAPPDATA", "/c", "/c/trimreg"),
        ("win32", "LOCALAPPDATA", "", "~/AppData/Local/trimreg"),
        ("linux", "TRIMREG_CACHE", "/own", "/own"),
    ],
)
def test_the_cache_of_each_system(monkeypatch, platform, variable, value, expected):
    monkeypatch.delenv("TRIMREG_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, value)
    assert cache_folder() == Path(expected).expanduser()


def with_nan(X):
    X = X.copy()
    X[3, 2] = np.nan
    return X


SACHS, RIBOFLAVIN, COLON = made_up("sachs"), made_up("riboflavin"), made_up("colon")


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("sachs", {"X": None}, "no array 'X'"),
        ("sachs", {"edges": None}, "no array 'edges'"),
        ("sachs", {"X": SACHS["X"][:100]}, "X in .* must have shape"),
        ("sachs", {"X": with_nan(SACHS["X"])}, "X in .* contains NaN"),
        ("sachs", {"X": SACHS["X"].astype(str)}, "X in .* must be numeric"),
        ("sachs", {"feature_names": np.array(["a"] * 11)}, "feature_names in .* 11 different"),
        ("sachs", {"feature_names": SACHS["feature_names"][:10]}, "feature_names in"),
        ("sachs", {"edges": SACHS["edges"][:17]}, r"edges in .* shape \(18, 2\)"),
        ("sachs", {"edges": np.full((18, 2), "actin")}, "edges in .*'actin'"),
        ("sachs", {"edges": np.full((18, 2), "protein1")}, "edges in .* different features"),
        ("riboflavin", {"y": RIBOFLAVIN["y"][:70]}, "y in .* must have shape"),
        ("riboflavin", {"y": np.array(["a"] * 71)}, "y in .* must be numeric"),
        ("colon", {"X": COLON["X"] - 1.0}, "X in .* positive"),
        ("colon", {"y": np.array(["t"] * 62)}, "y in .* 'n' or 't'"),
        ("colon", {"y": COLON["y"][:60]}, "y in .* 62 strings"),
    ],
)
def test_wrong_contents_are_named(folder, name, changes, said):
    write(folder, name, **changes)
    with pytest.raises(ValueError, match=said):
        LOADERS[name]()


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 broken"])
def test_a_damaged_file_is_named(folder, content):
    (folder / "sachs.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"sachs\.npz cannot be read"):
        load_sachs()


def test_pickled_objects_are_not_loaded(folder):
    np.savez(folder / "colon.npz", X=np.array([{"a": 1}], dtype=object), y=COLON["y"])
    with pytest.raises(ValueError, match="cannot be read"):
        load_colon()


# -- the data themselves -----------------------------------------------------------------------------------


def needs(name):
    there = FOLDER is not None and (Path(FOLDER) / f"{name}.npz").is_file()
    return pytest.mark.skipif(not there, reason=f"TRIMREG_DATA names no folder with {name}.npz")


@needs("sachs")
def test_sachs_itself():
    data = load_sachs()
    assert data.X.shape == (7466, 11)
    assert data.X.min() > 0
    assert data.skeleton.shape == (18, 2)
    named = {(data.feature_names[i], data.feature_names[j]) for i, j in data.edges}
    assert ("praf", "pmek") in named
    assert ("pmek", "praf") not in named


@needs("riboflavin")
def test_riboflavin_itself():
    X, y, names = load_riboflavin()
    assert X.shape == (71, 4088)
    assert y.max() < 0
    assert "YXLD_at" in names


@needs("colon")
def test_colon_itself():
    X, y, _ = load_colon()
    assert X.shape == (62, 2000)
    assert (y == "t").sum() == 40
