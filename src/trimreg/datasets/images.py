"""Images of digits and of clothes in the idx format, read from a folder or downloaded once.

A data set ``NAME`` is a folder ``NAME`` with four files such as ``train-images-idx3-ubyte.gz``. Each file is
searched in the folder ``TRIMREG_DATA``, then in the cache (see :mod:`trimreg.datasets.real`), then where
Debian's package ``dataset-NAME`` puts it. A missing file is downloaded from a public mirror to the cache.

Every file is checked by the SHA-256 of its *contents*: copies of these files are compressed in several ways,
and a checksum of the compressed file would reject good ones.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._files import write_atomically
from .real import FOLDER, cache_folder, data_folders

SECONDS_TO_ANSWER = 30.0
PACKAGED = Path("/usr/share/datasets")  # of Debian's packages
_UNSIGNED_BYTES = 0x08  # the code of the type in the third byte of an idx file


class ImageData(NamedTuple):
    """Gray images with labels, for training and for testing.

    Attributes
    ----------
    X_train, X_test : ndarray of uint8, of shape (n_images, height, width)
    y_train, y_test : ndarray of int64, of shape (n_images,)
    """

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class IdxFile:
    """A file: its name, the shape of its array of bytes, and the SHA-256 of its uncompressed contents."""

    name: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class ImageSet:
    """A data set: its files (train images and labels, test images and labels) and their mirrors."""

    name: str
    files: tuple[IdxFile, ...]
    mirrors: tuple[str, ...]

    @property
    def folders(self) -> list[Path]:
        """The folders in which its files are searched, in this order."""
        return [*(folder / self.name for folder in data_folders()), PACKAGED / self.name]


def _files(*digests):
    shapes = ((60000, 28, 28), (60000,), (10000, 28, 28), (10000,))
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple(
        IdxFile(f"{name}-ubyte.gz", shape, digest)
        for name, shape, digest in zip(names, shapes, digests, strict=True)
    )


MNIST = ImageSet(
    "mnist",
    _files(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
)
FASHION_MNIST = ImageSet(
    "fashion-mnist",
    _files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
)


def load_mnist(*, download: bool = True) -> ImageData:
    """Handwritten digits: 60,000 images for training and 10,000 for testing, 28 x 28 bytes each, ten classes.

    Parameters
    ----------
    download : bool
        Whether to download files that are in none of the folders, 12 MB in all.

    Returns
    -------
    ImageData

    References
    ----------
    LeCun, Bottou, Bengio and Haffner (1998). Gradient-based learning applied to document recognition.
    Proceedings of the IEEE 86, 2278-2324.

    Examples
    --------
    >>> from trimreg.datasets.images import load_mnist
    >>> data = load_mnist()  # doctest: +SKIP
    >>> data.X_train.shape, data.X_train.dtype, data.y_test[:5]  # doctest: +SKIP
    ((60000, 28, 28), dtype('uint8'), array([7, 2, 1, 0, 4]))
    """
    return _load(MNIST, download)


def load_fashion_mnist(*, download: bool = True) -> ImageData:
    """Clothes instead of digits, with the sizes and the format of :func:`load_mnist`: 31 MB, ten classes.

    The classes are T-shirt, trouser, pullover, dress, coat, sandal, shirt, sneaker, bag and ankle boot.

    References
    ----------
    Xiao, Rasul and Vollgraf (2017). Fashion-MNIST: a novel image dataset for benchmarking machine learning
    algorithms. arXiv:1708.07747.

    Examples
    --------
    >>> from trimreg.datasets.images import load_fashion_mnist
    >>> load_fashion_mnist().y_test[:5]  # doctest: +SKIP
    array([9, 2, 1, 1, 6])
    """
    return _load(FASHION_MNIST, download)


def _load(images, download):
    arrays = [_find(images, file, download) for file in images.files]
    X_train, y_train, X_test, y_test = arrays
    return ImageData(X_train, y_train.astype(np.int64), X_test, y_test.astype(np.int64))


def _find(images, file, download):
    """The array of a file, from the first folder that has it or from a mirror."""
    for folder in images.folders:
        if (folder / file.name).is_file():
            return read_idx(folder / file.name, file.shape, file.sha256)
    if download:
        return _fetch(images, file)
    raise FileNotFoundError(_missing(images, file, "It was not downloaded, since download is False."))


def _missing(images, file, why):
    folders = ", ".join(map(str, images.folders))
    return (
        f"{file.name} is in none of: {folders}. {why} Set the environment variable {FOLDER} to a folder that "
        f"contains a folder {images.name!r} with the four files of {images.mirrors[0]}"
    )


# -- reading ------------------------------------------------------------------------------------------------


def read_idx(path: str | Path, shape: tuple[int, ...], sha256: str | None = None) -> np.ndarray:
    """The bytes of a compressed idx file as an array, checked against a shape and a checksum.

    An idx file begins with two zero bytes, one byte for the type of its entries, one byte for the number of
    axes, and the length of each axis in four bytes, the highest first. The entries follow. A ``ValueError``
    names a file that is damaged, truncated or a different one.
    """
    return _idx_array(path, path, shape, sha256)


def _idx_array(source, name, shape, sha256):
    """:func:`read_idx` for a path or an open file, called ``name`` in errors."""
    header = bytes([0, 0, _UNSIGNED_BYTES, len(shape)])
    header += b"".join(int(length).to_bytes(4, "big") for length in shape)
    expected = len(header) + math.prod(shape)
    try:
        with gzip.open(source) as file:
            content = file.read(expected + 1)  # one byte more than expected, to notice a longer file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{name} is damaged or truncated and cannot be uncompressed: {error}") from error
    if content[: len(header)] != header:
        raise ValueError(
            f"{name} must be an idx file of bytes of shape {tuple(shape)}; "
            f"it begins with {content[: len(header)].hex(' ') or 'nothing'}, not with {header.hex(' ')}"
        )
    if len(content) != expected:
        found = "more" if len(content) > expected else f"{len(content)}"
        raise ValueError(f"{name} must hold {expected} bytes uncompressed; it holds {found}")
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{name} is not the expected file: the SHA-256 of its contents is not {sha256}")
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape).copy()


# -- downloading --------------------------------------------------------------------------------------------


def _fetch(images, file):
    """The array of a file of a mirror, which is kept in the cache."""
    path = cache_folder() / images.name / file.name
    failures = []
    for mirror in images.mirrors:
        address = mirror + file.name
        try:
            with urllib.request.urlopen(address, timeout=SECONDS_TO_ANSWER) as answer:
                content = answer.read()
            array = _idx_array(io.BytesIO(content), address, file.shape, file.sha256)
        except (OSError, ValueError) as error:  # no answer, or another file
            failures.append(f"{address}: {error}")
        else:
            write_atomically(path, content)
            return array
    raise FileNotFoundError(_missing(images, file, f"Downloading it failed ({'; '.join(failures)})."))
