"""Write the lists of pinned packages: ``make pins``; ``UPGRADE=1`` takes the newest versions.

Each list has what the one below it lacks, with the hashes of all files of a version: any platform, any
Python that we support. What exists only for CUDA is left out, and so is torch: install.py installs it alone.
"""

import re
import subprocess
import sys
from pathlib import Path

from install import BY_ITSELF

HERE = Path(__file__).resolve().parent
#: A list, the one that it builds on, and the extras of `pyproject.toml` that it adds.
LISTS = {
    "demo": (None, ["plot"]),
    "test": ("demo", ["test", "lint"]),
    "bench": ("test", ["bench"]),
    "package": ("demo", ["package"]),
    "docs": ("test", ["docs"]),
}
HEAD = "# Written by: make pins\n"


def compiled(uv: str, source: str, *options: str) -> dict[str, str]:
    """The block of lines of each package that the source needs, by its name."""
    known = HERE / "known.txt"
    command = [uv, "pip", "compile", "-", "--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-annotate", "--no-header", "--quiet", "--constraints", str(known), *options]
    text = subprocess.run(command, input=source, text=True, stdout=subprocess.PIPE, check=True).stdout
    blocks: dict[str, str] = {}
    for block in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]:
        name = re.match("[a-z0-9-]+", block)[0]
        blocks[name] = blocks.get(name, "") + block  # versions may differ by Python and platform
    return blocks


def pinned(name: str) -> str:
    """The versions on a list, with their conditions; none if there is no such list yet."""
    file = HERE / f"{name}.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    return "".join(line.rstrip("\\ ") + "\n" for line in lines if "==" in line)


def main(uv: str, upgrade: str = "") -> None:
    known = HERE / "known.txt"
    try:
        known.write_text("" if upgrade else pinned("uv"))
        (HERE / "uv.txt").write_text(HEAD + "".join(compiled(uv, "uv\n").values()))
        packages, extras, versions = {None: set()}, {None: []}, {None: pinned("torch")}
        for name, (below, more) in LISTS.items():
            extras[name] = extras[below] + more
            # What is below stays as it is; other lists may have other versions.
            known.write_text(versions[below] + ("" if upgrade else pinned(name)))
            source = f"trimreg[{','.join(extras[name])}] @ {HERE.parent.as_uri()}\nhatchling\n"
            blocks = {key: block for key, block in compiled(uv, source).items() if key != "trimreg"}
            rest = [
                block
                for key, block in blocks.items()
                if key not in packages[below] and not re.match(BY_ITSELF, block)
            ]
            (HERE / f"{name}.txt").write_text(HEAD + "".join(rest))
            packages[name] = packages[below] | set(blocks)
            versions[name] = versions[below] + pinned(name)
    finally:
        known.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
