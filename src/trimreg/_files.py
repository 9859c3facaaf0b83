"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_atomically(path, data: bytes) -> Path:
    """Write ``data`` to ``path`` so that a reader, or a run cut short, never meets half a file.

    The bytes go to a temporary file in the same folder, which then takes the name in one step.

    Parameters
    ----------
    path : path-like
        Folders above it are made if they are missing.
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
