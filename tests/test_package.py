"""The archives that are published, and the files about the package that repeat what it says."""

import importlib.util
import json
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def script(name):
    """A script of the folder `requirements` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "requirements" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = script("release")


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Wheel and sdist, built twice: the files of both folders."""
    pytest.importorskip("hatchling", reason="hatchling builds the package")
    from hatchling.builders.sdist import SdistBuilder
    from hatchling.builders.wheel import WheelBuilder

    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        for turn in range(2):
            folder = tmp_path_factory.mktemp(f"dist{turn}")
            for builder in (WheelBuilder, SdistBuilder):
                list(builder(str(ROOT)).build(directory=str(folder), versions=["standard"]))
            found.append(sorted(folder.iterdir()))
    return found


def test_two_builds_have_the_same_bytes(archives):
    first, second = archives
    assert [file.name for file in first] == [file.name for file in second]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_the_wheel_has_the_sources_and_nothing_else(archives):
    wheel = next(file for file in archives[0] if file.suffix == ".whl")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        information = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        parts = json.loads(opened.read(f"{information}/sboms/{release.SBOM.name}"))
    assert parts["metadata"]["component"]["version"] == release.version()
    others = {name for name in names if not name.startswith(f"{information}/")}
    suffixes = {".py", ".typed", ".html", ".css", ".js", ".j2"}
    sources = {
        file.relative_to(ROOT / "src").as_posix()
        for file in (ROOT / "src").rglob("*")
        if file.is_file() and file.suffix in suffixes
    }
    assert others == sources
    about = {
        "METADATA",
        "WHEEL",
        "RECORD",
        "entry_points.txt",
        "licenses/LICENSE",
        f"sboms/{release.SBOM.name}",
    }
    assert {name.partition("/")[2] for name in names} - {n.partition("/")[2] for n in others} == about


def test_the_sdist_can_be_tested(archives):
    sdist = next(file for file in archives[0] if file.name.endswith(".tar.gz"))
    with tarfile.open(sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {
        "Makefile",
        "pyproject.toml",
        "LICENSE",
        "README.md",
        "tests/conftest.py",
        "requirements/test.txt",
    } <= names
    assert not [
        name for name in names if "__pycache__" in name or name.startswith((".venv", ".git/", "dist/"))
    ]


def test_the_list_of_parts_is_that_of_the_package():
    assert release.SBOM.read_text() == release.sbom(), "run: python requirements/release.py sbom"


def test_files_about_the_package_agree():
    import yaml

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (release.version(), PROJECT["project"]["license"])
    recipe = (ROOT / "conda" / "recipe.yaml").read_text()
    assert f'version: "{release.version()}"' in recipe
    run = re.search(r"\n  run:\n(.*?)\n\n", recipe, re.DOTALL)[1]
    asked = {line.strip(" -").replace(" ", "") for line in run.splitlines()}
    assert asked == {*PROJECT["project"]["dependencies"], f"python{PROJECT['project']['requires-python']}"}
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        targets = re.findall(r"make ([a-z-]+)(?=\s)", workflow.read_text())
        made = (ROOT / "Makefile").read_text()
        assert targets
        assert all(re.search(rf"^(\S+ )*{target}( \S+)*:", made, re.MULTILINE) for target in targets)


def test_notes_of_a_release(monkeypatch, tmp_path):
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text("# Log\n\n## 0.2.0 - 2026\n\n- New.\n\n## 0.1.0\n\n- Old.\n")
    assert release.notes("0.2.0") == "- New.\n"
    assert release.notes("0.1.0") == "- Old.\n"
    with pytest.raises(SystemExit, match=r"0\.3"):
        release.notes("0.3")
