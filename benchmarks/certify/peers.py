"""Other programs, each in a virtual environment of its own that is made on first use.

Their scripts stand in ``scripts``: they read a problem from a file and print one line of JSON. None of these programs
is imported by trimreg, and el0ps (AGPL) is used here alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import numpy as np

#: okridge and l0bnb use names that numpy 2 removed; pybnb, under el0ps, loads an MPI library even for one process.
PACKAGES = {
    "okridge": ("okridge==0.1.1", "numpy<2", "scipy", "requests"),
    "l0bnb": ("l0bnb==1.0.0", "numpy<2"),
    "el0ps": ("el0ps==0.0.4", "mpi4py", "mpich"),
    "scip": ("pyscipopt==6.3.0", "numpy"),
}
SCRIPTS = Path(__file__).parent / "scripts"
GRACE = 300.0  # seconds beyond the time limit: imports, compiling, a last node


def environment(name: str) -> Path:
    """The interpreter of a peer's environment.

    Raises ``OSError`` or ``subprocess.CalledProcessError`` if the environment cannot be made.
    """
    folder = Path(tempfile.gettempdir()) / f"trimreg-{name}"
    python, complete = folder / "bin" / "python", folder / "complete"
    wanted = "\n".join(PACKAGES[name])
    if not complete.exists() or complete.read_text() != wanted:
        print(f"installing {name} ...", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True, clear=True)
        command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES[name]]
        subprocess.run(command, check=True, capture_output=True, text=True)
        complete.write_text(wanted)
    return python


def solved_by(name: str, time_limit: float, **problem) -> dict:
    """What the peer's script prints for a problem, or ``{"failed": reason}``.

    ``problem`` is written to the file that the script reads. ``solves`` in it says how many times the limit may be used.
    """
    seconds = time_limit * problem.get("solves", 1) + GRACE
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/problem.npz", time_limit=time_limit, **problem)
        try:
            command = [environment(name), SCRIPTS / f"by_{name}.py", f"{folder}/problem.npz"]
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=seconds)
            return json.loads(done.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired:
            reason = f"did not end within {seconds:.0f} s"
        except subprocess.CalledProcessError as error:
            doing = "not installed" if "pip" in error.cmd else "failed"
            reason = f"{doing}: {_last_line(error.stderr)}"
        except (OSError, IndexError, ValueError) as error:
            reason = f"failed: {error}"
    print(f"{name} {reason}", file=sys.stderr, flush=True)
    return {"failed": reason}


def _last_line(text: str | None) -> str:
    lines = [line.strip() for line in (text or "").splitlines() if line.strip() and "WARNING" not in line]
    return lines[-1][:200].replace("|", "/") if lines else "no message"
