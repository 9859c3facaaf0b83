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
}
HEAD = "# Written by: make pins\n"


def compiled(uv: str, source: str, *options: str) -> dict[str, str]:
    """The block of lines of each package that the source needs, by its name."""
    known = HERE / "known.txt"
    command = [uv, "pip", "compile", "-", "--universal", "--python-version", "3.11", "--generate-hashes"]
    command += ["--no-annotate", "--no-header", "--quiet", "--constraints", str(known), *options]
    text = subprocess.run(command, input=source, text=True, stdout=subprocess.PIPE, check=True).stdout
    blocks = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    return {re.match("[a-z0-9-]+", block)[0]: block for block in blocks}


def main(uv: str, upgrade: str = "") -> None:
    known, old = HERE / "known.txt", ""
    for file in [] if upgrade else sorted(HERE.glob("*.txt")):
        old += "".join(
            line.partition(" ")[0] + "\n" for line in file.read_text().splitlines() if "==" in line
        )
    torch = (HERE / "torch.txt").read_text()
    known.write_text(torch if upgrade else old)
    try:
        (HERE / "uv.txt").write_text(HEAD + "".join(compiled(uv, "uv\n").values()))
        packages, extras = {None: set()}, {None: []}
        for name, (below, more) in LISTS.items():
            extras[name] = extras[below] + more
            source = f"trimreg[{','.join(extras[name])}] @ {HERE.parent.as_uri()}\nhatchling\n"
            blocks = {key: block for key, block in compiled(uv, source).items() if key != "trimreg"}
            rest = [
                block
                for key, block in blocks.items()
                if key not in packages[below] and not re.match(BY_ITSELF, block)
            ]
            (HERE / f"{name}.txt").write_text(HEAD + "".join(rest))
            packages[name] = packages[below] | set(blocks)
    finally:
        known.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
