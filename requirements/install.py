"""Make a virtual environment and install pinned packages: ``python requirements/install.py .venv demo test``.

Each name is a list beside this file; ``lowest`` and ``newest`` are the versions that `pyproject.toml` allows.
Listed packages are checked by their hashes, but for torch, whose build differs from machine to machine. uv
installs, in a fifth of pip's time; where it fails, pip does.
"""

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: How uv resolves the bounds of `pyproject.toml`.
BOUNDS = {"lowest": "lowest-direct", "newest": "highest"}
#: On no list: torch, and what exists only for CUDA.
BY_ITSELF = r"torch==|triton==|nvidia-|cuda-"
#: Options of pip that uv has under another name. uv does not read pip's configuration.
OF_UV = {
    "index-url": "--default-index",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}


def main(folder: str, *names: str) -> None:
    python = Path(folder).absolute() / "bin" / "python"
    pip = pip_of(python)
    uv = uv_beside(python, pip)
    for name in names:
        if name in BOUNDS:
            versions = python.parents[1] / f"{name}.txt"
            versions.write_text(resolved(uv, BOUNDS[name]))
            install(pip, uv, "--no-deps", "-r", str(versions))
            install_torch(pip, uv)
            continue
        install(pip, uv, "--no-deps", "--require-hashes", "-r", str(HERE / f"{name}.txt"))
        if name == "test":
            install_torch(pip, uv)
    # What builds the package is on the list, so nothing is downloaded for it.
    install(pip, uv, "--no-deps", "--no-build-isolation", "-e", str(HERE.parent))


def pip_of(python: Path) -> list[str]:
    """The pip that installs for an interpreter, which is made if it is not there.

    It is our own pip if that is recent enough to install elsewhere; else the new environment gets one.
    """
    ours = [sys.executable, "-m", "pip", "--python"]
    if not python.exists():
        elsewhere = subprocess.run([*ours, sys.executable, "--version"], capture_output=True).returncode == 0
        option = ["--without-pip"] if elsewhere else []
        subprocess.run([sys.executable, "-m", "venv", *option, str(python.parents[1])], check=True)
    if python.with_name("pip").exists():
        return [str(python), "-m", "pip"]
    return [*ours, str(python)]


def uv_beside(python: Path, pip: list[str]) -> list[str]:
    """The command that installs by uv from where pip would; empty if there is no uv."""
    uv = python.with_name("uv")
    if not uv.exists():
        done = run_pip(pip, "--no-deps", "--require-hashes", "-r", str(HERE / "uv.txt"))
        if done != 0 or not uv.exists():
            return []
    listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True).stdout
    settings = pip_settings(listed)
    command = [str(uv), "pip", "install", "--quiet", "--python", str(python)]
    command += ["--index-strategy", "unsafe-best-match"]  # pip's: the best version of all indexes
    for name, option in OF_UV.items():
        for value in settings.get(name, "").split():
            command += [option, value]
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        command += ["--no-index"]
    certificates = [settings.get("cert"), *map(os.environ.get, ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"))]
    for file in filter(None, certificates):
        os.environ.setdefault("SSL_CERT_FILE", file)
    for name, variable in (("proxy", "ALL_PROXY"), ("client-cert", "SSL_CLIENT_CERT")):
        if name in settings:
            os.environ.setdefault(variable, settings[name])
    return command


def resolved(uv: list[str], resolution: str) -> str:
    """The packages of the tests in the versions that a resolution chooses; torch is the pinned one."""
    if not uv:
        sys.exit("this needs uv, which pip could not install")
    command = [uv[0], "pip", "compile", *uv[3:], "--resolution", resolution, "--no-header", "--no-annotate"]
    command += ["--upgrade", "--extra", "test", "--constraints", str(HERE / "torch.txt")]
    project = HERE.parent / "pyproject.toml"
    build = tomllib.loads(project.read_text(encoding="utf-8"))["build-system"]["requires"]
    done = subprocess.run(
        [*command, str(project), "-"], input="\n".join(build), stdout=subprocess.PIPE, text=True, check=True
    )
    lines = done.stdout.splitlines(keepends=True)
    return "".join(line for line in lines if not re.match(BY_ITSELF, line))


def pip_settings(listed: str) -> dict[str, str]:
    """What ``pip config list`` says that concerns an installation; the environment goes before files."""
    found: dict = {}
    for section in ("global", "install", ":env:"):
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if name.rpartition(".")[0] == section:
                found[name.rpartition(".")[2]] = ast.literal_eval(value)
    return found


def run_pip(pip: list[str], *what: str) -> int:
    # Byte code is made when a module is first imported: most of what is installed never is.
    options = ("install", "--quiet", "--disable-pip-version-check", "--no-compile")
    return subprocess.run([*pip, *options, *what]).returncode


def install(pip: list[str], uv: list[str], *what: str) -> None:
    if uv and subprocess.run([*uv, *what]).returncode == 0:
        return
    if run_pip(pip, *what) != 0:
        sys.exit(1)


def install_torch(pip: list[str], uv: list[str]) -> None:
    """PyTorch for the processor: from the folders that pip knows, else PyTorch's own, else what pip finds.

    On Linux the one of PyPI is made for CUDA and takes several gigabytes.
    """
    what = ("-r", str(HERE / "torch.txt"))
    if "--find-links" in uv:
        local = subprocess.run([*uv, "--no-index", "--no-deps", *what], capture_output=True)
        if local.returncode == 0:
            return
    if uv and subprocess.run([*uv, "--torch-backend", "cpu", *what], capture_output=True).returncode == 0:
        return
    if run_pip(pip, *what) != 0:
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
