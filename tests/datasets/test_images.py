"""Loaders of images: where they look, what they refuse and fetch; the images themselves where they are."""

from __future__ import annotations

import gzip
import hashlib
import io
import urllib.error
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trimreg.datasets import images
from trimreg.datasets.images import FASHION_MNIST, MNIST, load_fashion_mnist, load_mnist, read_idx

LOADERS = {"mnist": load_mnist, "fashion-mnist": load_fashion_mnist}
CONSTANTS = {"mnist": "MNIST", "fashion-mnist": "FASHION_MNIST"}
SHAPES = ((5, 4, 3), (5,), (2, 4, 3), (2,))
MIRRORS = ("https://first.example/", "https://second.example/")


def idx(array):
    """An array of bytes as an idx file, by the book."""
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def no_network(monkeypatch):
    """Nobody answers; the addresses that were asked."""
    asked = []

    def refuse(address, timeout):
        asked.append(address)
        raise urllib.error.URLError("no network")

    monkeypatch.setattr(images.urllib.request, "urlopen", refuse)
    return asked


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Empty folders, and sets of tiny images of which each loader knows the checksums."""
    monkeypatch.setenv("TRIMREG_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TRIMREG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(images, "PACKAGED", tmp_path / "packaged")
    rng = np.random.default_rng(0)
    arrays = {}
    for name, constant in CONSTANTS.items():
        known = getattr(images, constant)
        arrays[name] = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in SHAPES]
        files = [
            replace(file, shape=array.shape, sha256=hashlib.sha256(idx(array)).hexdigest())
            for file, array in zip(known.files, arrays[name], strict=True)
        ]
        monkeypatch.setattr(images, constant, replace(known, files=tuple(files), mirrors=MIRRORS))
    return tmp_path, arrays


def write(folder, arrays, level=9):
    folder.mkdir(parents=True, exist_ok=True)
    for file, array in zip(MNIST.files, arrays, strict=True):
        (folder / file.name).write_bytes(gzip.compress(idx(array), level))


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("place", ["data", "cache"])
@pytest.mark.parametrize("level", [1, 9])
def test_arrays_however_compressed(places, no_network, name, place, level):
    folder, arrays = places
    write(folder / place / name, arrays[name], level)
    data = LOADERS[name]()
    for found, stored in zip(data, arrays[name], strict=True):
        assert np.array_equal(found, stored)
    assert data.X_train.dtype == data.X_test.dtype == np.uint8
    assert data.y_train.dtype == data.y_test.dtype == np.int64
    assert data.X_train.flags.writeable
    assert data.X_train.shape == (5, 4, 3)
    assert not no_network


def test_the_folder_comes_before_the_cache(places, no_network):
    folder, arrays = places
    write(folder / "cache" / "mnist", arrays["mnist"])
    (folder / "data" / "mnist").mkdir(parents=True)
    bad = folder / "data" / "mnist" / MNIST.files[1].name
    bad.write_bytes(b"bad")
    with pytest.raises(ValueError, match="data/mnist/train-labels"):
        load_mnist()
    bad.unlink()
    assert len(load_mnist().y_train) == 5  # a folder without the files is no obstacle


def test_debian_s_package_is_looked_for_last():
    assert FASHION_MNIST.folders[-1] == Path("/usr/share/datasets/fashion-mnist")
    assert len(FASHION_MNIST.folders) > 1


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda raw: gzip.compress(raw)[:-9], "damaged or truncated"),
        (lambda raw: gzip.compress(raw)[:10] + b"\xff" * 20, "damaged or truncated"),
        (lambda raw: raw, "damaged or truncated"),
        (lambda raw: b"", "begins with nothing"),
        (lambda raw: gzip.compress(raw[:-1]), "must hold 76 bytes uncompressed; it holds 75"),
        (lambda raw: gzip.compress(raw + b"\0"), "must hold 76 bytes uncompressed; it holds more"),
        (lambda raw: gzip.compress(raw[:2] + b"\x0d" + raw[3:]), "begins with 00 00 0d 03"),
        (lambda raw: gzip.compress(raw[:7] + b"\6" + raw[8:]), r"bytes of shape \(5, 4, 3\)"),
        (lambda raw: gzip.compress(raw[:-1] + bytes([raw[-1] ^ 1])), "not the expected file"),
    ],
)
def test_a_bad_file_is_named_and_not_fetched_again(places, no_network, damage, said):
    folder, arrays = places
    write(folder / "data" / "mnist", arrays["mnist"])
    path = folder / "data" / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(idx(arrays["mnist"][0])))
    with pytest.raises(ValueError, match=said) as caught:
        load_mnist()
    assert str(path) in str(caught.value)
    assert not no_network


def test_a_missing_file_says_what_to_do(places, no_network):
    folder, _ = places
    with pytest.raises(FileNotFoundError, match="download is False") as caught:
        load_fashion_mnist(download=False)
    assert not no_network
    with pytest.raises(FileNotFoundError, match="no network") as tried:
        load_fashion_mnist()
    assert no_network == [f"{mirror}train-images-idx3-ubyte.gz" for mirror in MIRRORS]
    for message in (str(caught.value), str(tried.value)):
        for part in ("train-images-idx3-ubyte.gz", "TRIMREG_DATA", str(folder / "cache" / "fashion-mnist")):
            assert part in message
    assert not (folder / "cache").exists()


def test_fetched_files_are_checked_and_kept(places, monkeypatch):
    folder, arrays = places
    contents = {f.name: gzip.compress(idx(a)) for f, a in zip(MNIST.files, arrays["mnist"], strict=True)}
    asked = []

    def answer(address, timeout):
        asked.append(address)
        name = address.rpartition("/")[2]
        # The first mirror has a file cut short: the second must be asked, and nothing of the first stays.
        wrong = address.startswith(MIRRORS[0]) and name.startswith("t10k-images")
        return io.BytesIO(contents[name][:-9] if wrong else contents[name])

    monkeypatch.setattr(images.urllib.request, "urlopen", answer)
    for found, stored in zip(load_mnist(), arrays["mnist"], strict=True):
        assert np.array_equal(found, stored)
    assert len(asked) == 5
    assert asked[2:4] == [f"{mirror}t10k-images-idx3-ubyte.gz" for mirror in MIRRORS]
    assert sorted(path.name for path in (folder / "cache" / "mnist").iterdir()) == sorted(contents)
    assert np.array_equal(load_mnist().y_test, arrays["mnist"][3])
    assert len(asked) == 5


def test_without_a_checksum_any_contents_of_the_shape_do(tmp_path):
    rng = np.random.default_rng(1)
    for shape in [(0,), (7,), (2, 3), (3, 1, 2), (300, 2)]:
        array = rng.integers(0, 256, shape, dtype=np.uint8)
        (tmp_path / "a.gz").write_bytes(gzip.compress(idx(array)))
        assert np.array_equal(read_idx(tmp_path / "a.gz", shape), array)
        with pytest.raises(ValueError, match="not the expected file"):
            read_idx(tmp_path / "a.gz", shape, "0" * 64)


# -- the images themselves ---------------------------------------------------------------------------------


def test_what_the_sets_promise():
    for known in (MNIST, FASHION_MNIST):
        assert [file.shape for file in known.files] == [(60000, 28, 28), (60000,), (10000, 28, 28), (10000,)]
        assert len({file.sha256 for file in known.files}) == 4
        assert all(len(file.sha256) == 64 for file in known.files)
        assert all(mirror.endswith("/") for mirror in known.mirrors)


@pytest.mark.parametrize(
    ("known", "first", "mean"), [(MNIST, [7, 2, 1, 0, 4], 0.1325), (FASHION_MNIST, [9, 2, 1, 1, 6], 0.2868)]
)
def test_the_images_themselves(known, first, mean):
    if not all(any((folder / file.name).is_file() for folder in known.folders) for file in known.files):
        pytest.skip(f"no folder has the files of {known.name}")
    data = LOADERS[known.name](download=False)
    assert data.y_test[:5].tolist() == first
    assert data.X_test.mean() / 255 == pytest.approx(mean, abs=5e-5)
    assert np.bincount(data.y_train).min() > 5400
