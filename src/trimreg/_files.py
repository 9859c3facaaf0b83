"""Files of the user: written whole or not at all, and refused with one line if they cannot be used."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


class BadInput(ValueError):
    """A file, table or option that cannot be used; the message says in one line what to change."""


def write_atomically(path: str | os.PathLike, data: bytes) -> Path:
    """Write ``data`` to ``path`` so that no reader and no interrupted run ever sees half a file.

    The bytes go to a temporary file in the same folder, which is then renamed.

    Parameters
    ----------
    path : path-like
        Missing folders above it are made.
    data : bytes

    Returns
    -------
    pathlib.Path

    Examples
    --------
    >>> import tempfile
    >>> from trimreg._files import write_atomically
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(f"{folder}/new/table.csv", b"a,b").read_bytes()
    b'a,b'
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # else the name may reach the disk before the bytes do
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes files that only their owner may read
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return path


def _umask() -> int:
    mask = os.umask(0)  # the only way to read it is to set it
    os.umask(mask)
    return mask
