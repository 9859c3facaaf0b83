"""Files of the user: written whole or not at all, and refused with one line if they cannot be used."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


class BadInput(ValueError):
    """A file, table or option that cannot be used; the message says in one line what to change."""


def write_atomically(path: str | os.PathLike, data: bytes) -> Path:
    """Write ``data`` to ``path`` so that no reader and no interrupted run ever sees half a file.

    The bytes go to a temporary file in the same folder, which is then renamed. A file that is there keeps its
    permissions, and a symbolic link goes on pointing to it. What is no file, such as ``/dev/stdout`` or a
    pipe, is written to directly.

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
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return path
    final = Path(os.path.realpath(path))
    handle, temporary = _scratch(final.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            if final.exists():
                os.chmod(temporary or handle, final.stat().st_mode & 0o7777)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # else the name may reach the disk before the bytes do
            if temporary is None:
                temporary = _new_name(final.parent)
                # With a descriptor of a folder, which an absolute path ignores, os.link follows the link.
                os.link(f"/proc/self/fd/{handle}", temporary, src_dir_fd=handle)
        os.replace(temporary, final)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno and error.filename is None:  # such as a full disk
            error.filename = str(path)
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise
    return path


def _scratch(folder):
    """The descriptor of a new file, and its name; None where the file needs no name while it is written.

    A file without a name leaves nothing behind when the process is killed.
    """
    if hasattr(os, "O_TMPFILE") and os.path.exists("/proc/self/fd"):
        with contextlib.suppress(OSError):  # some file systems have no such files
            return os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666), None
    temporary = _new_name(folder)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
    return os.open(temporary, flags, 0o666), temporary


def _new_name(folder):
    """A name in the folder that no other file has; short, because names have a greatest length."""
    return os.path.join(folder, f".trimreg-{secrets.token_hex(8)}")
