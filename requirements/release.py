"""What a release needs beside the code: its notes and the list of its parts.

    python requirements/release.py notes 0.2.0    the section of CHANGELOG.md
    python requirements/release.py sbom           writes requirements/trimreg.cdx.json

The wheel contains the list of parts (PEP 770, CycloneDX 1.6). No other package is bundled, so the parts are
the package and the direct dependencies that it declares.
"""

import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SBOM = ROOT / "requirements" / "trimreg.cdx.json"


def version() -> str:
    """The version of the package, read from its source."""
    source = (ROOT / "src" / "trimreg" / "__init__.py").read_text()
    return re.search(r'^__version__ = "(.+)"', source, re.MULTILINE)[1]


def sbom() -> str:
    """The text of the list of parts: the same for the same ``pyproject.toml`` and version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = f"pkg:pypi/trimreg@{version()}"
    names = [re.match("[A-Za-z0-9_.-]+", line)[0].lower() for line in project["dependencies"]]
    references = [f"pkg:pypi/{name}" for name in names]
    parts = [
        {"type": "library", "bom-ref": reference, "name": name, "purl": reference,
         "properties": [{"name": "requirement", "value": line}]}
        for name, reference, line in zip(names, references, project["dependencies"], strict=True)
    ]  # fmt: skip
    component = {
        "type": "library", "bom-ref": own, "name": "trimreg", "version": version(), "purl": own,
        "description": project["description"], "licenses": [{"license": {"id": project["license"]}}],
    }  # fmt: skip
    return json.dumps(
        {
            "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
            "metadata": {"component": component},
            "components": parts,
            "dependencies": [{"ref": own, "dependsOn": references}],
        },
        indent=1,
    ) + "\n"  # fmt: skip


def notes(release: str) -> str:
    """The section of a release in the changelog, without its heading."""
    text = (ROOT / "CHANGELOG.md").read_text()
    found = re.search(rf"^## \[?{re.escape(release)}\b.*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        sys.exit(f"CHANGELOG.md has no section {release!r}")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["sbom"]:
        SBOM.write_text(sbom())
    elif sys.argv[1:2] == ["notes"] and len(sys.argv) == 3:
        print(notes(sys.argv[2]), end="")
    else:
        sys.exit(__doc__)
