"""Build the package and check it: ``make package``, or ``python requirements/package.py dist``.

It builds wheel and sdist twice and compares them byte by byte, runs ``twine check``, installs the wheel in a
bare environment, runs the ten lines of the README there, and prints the hashes. Files in the archives have
the time of the last commit, so whoever builds this commit gets the same bytes.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(folder: str) -> None:
    dist = Path(folder).resolve()
    dist.mkdir(parents=True, exist_ok=True)
    for old in dist.glob("trimreg-*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        build(dist)
        build(Path(scratch))
        hashes = {file.name: digest(file) for file in sorted(dist.iterdir())}
        again = {file.name: digest(file) for file in sorted(Path(scratch).iterdir())}
    if hashes != again:
        sys.exit(f"two builds differ: {hashes} and {again}")
    files = [str(dist / name) for name in hashes]
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    try_wheel(next(file for file in files if file.endswith(".whl")))
    for name, value in hashes.items():
        print(f"{value}  {name}")


def build(folder: Path) -> None:
    """Wheel and sdist of the working tree, with the time of the last commit."""
    if "SOURCE_DATE_EPOCH" not in os.environ:
        command = ["git", "log", "-1", "--format=%ct"]
        stamp = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
        os.environ["SOURCE_DATE_EPOCH"] = stamp or "1600000000"  # an unpacked sdist has no history
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT))


def try_wheel(wheel: str) -> None:
    """Install the wheel alone in a new environment, and run the ten lines there."""
    lines = re.search(r"## Ten lines\n\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", folder)
        python = str(Path(folder) / ("Scripts" if os.name == "nt" else "bin") / "python")
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
        run(python, "-c", lines[1], cwd=folder)


def run(*command: str, cwd: Path | str = ROOT) -> None:
    """Run a command; end with its code if it fails."""
    ended = subprocess.run(command, cwd=cwd)
    if ended.returncode:
        sys.exit(ended.returncode)


def digest(file: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    main(*sys.argv[1:])
