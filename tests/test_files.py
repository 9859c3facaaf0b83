"""Files are whole or not there."""

import os

import pytest

from trimreg import _files as files


def test_replaces_what_was_there(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    files.write_atomically(path, b"old")
    files.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_no_rubbish(tmp_path, monkeypatch):
    path = files.write_atomically(tmp_path / "a.txt", b"old")

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.skipif(os.name == "nt", reason="no permission bits")
def test_permissions_are_those_of_any_new_file(tmp_path):
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    written = files.write_atomically(tmp_path / "written", b"")
    assert written.stat().st_mode == plain.stat().st_mode


@pytest.mark.skipif(os.name == "nt", reason="no permission bits")
def test_a_file_keeps_its_permissions_and_a_link_its_place(tmp_path):
    secret, link = tmp_path / "secret", tmp_path / "link"
    secret.write_bytes(b"old")
    secret.chmod(0o600)
    link.symlink_to(secret)
    files.write_atomically(link, b"new")
    assert link.is_symlink()
    assert secret.read_bytes() == b"new"
    assert secret.stat().st_mode & 0o777 == 0o600


def test_a_file_being_written_has_no_name_to_leave_behind(tmp_path, monkeypatch):
    handle, name = files._scratch(tmp_path)
    os.close(handle)
    if name is not None:
        return  # this system has only files with names
    seen = []
    monkeypatch.setattr(files.os, "fsync", lambda _: seen.append(list(tmp_path.iterdir())))
    files.write_atomically(tmp_path / "a.txt", b"data")
    assert seen == [[]]


def test_systems_without_nameless_files(tmp_path, monkeypatch):
    monkeypatch.delattr(files.os, "O_TMPFILE", raising=False)
    path = files.write_atomically(tmp_path / "a.txt", b"data")
    assert path.read_bytes() == b"data"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_the_longest_name_and_what_is_no_file_can_be_written(tmp_path):
    assert files.write_atomically(tmp_path / ("n" * 255), b"data").read_bytes() == b"data"
    files.write_atomically(os.devnull, b"data")
    assert not os.path.isfile(os.devnull)


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*a\.txt"):
        files.write_atomically(tmp_path / "a.txt", b"data")
    assert list(tmp_path.iterdir()) == []
