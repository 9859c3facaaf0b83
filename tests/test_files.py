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
