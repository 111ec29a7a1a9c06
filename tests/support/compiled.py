"""A virtual environment in which `core` and the wheel are compiled, and the option that checks that they are.

    python -m tests.support.compiled build/compiled

makes one beside the environment that it is called in: it has the compiled wheel of its own, and all else from there.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

import pytest

from hatch_build import compiled_modules

ROOT: Final = Path(__file__).parents[2]


def make_environment(directory: Path, *, opt_level: int = 3) -> Path:
    """Build the compiled wheel and install it in a new virtual environment; return its Python.

    Args:
        directory: of the environment; what is there is replaced.
        opt_level: the C compiler's level of optimisation; 0 compiles fastest.

    Raises:
        RuntimeError: there is no C compiler, or the wheel cannot be built; the build's last lines are in the message.
    """
    if (lacking := missing_compiler()) is not None:
        raise RuntimeError(lacking)
    directory = directory.resolve()
    venv.create(directory, clear=True, symlinks=True, with_pip=False)
    python = directory / "bin" / "python"
    wheels = directory / "wheel"
    _run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(wheels)],
        os.environ | {"TARRY_COMPILE": "1", "MYPYC_OPT_LEVEL": str(opt_level)},
    )
    (wheel,) = wheels.iterdir()
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
    _run([*pip, "install", "--no-deps", "--no-index", "--no-compile", str(wheel)], dict(os.environ))
    # After the environment's own packages, so that its tarry is found before the one that is installed there.
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    own = directory / "lib" / version / "site-packages"
    (own / "locked.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n", encoding="utf-8")
    return python


def missing_compiler() -> str | None:
    """Return why nothing can be compiled here; None: it can."""
    compiler = os.environ.get("CC") or str(sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler.split()[0]) is None:
        return f"no C compiler: {compiler.split()[0]} is not on the PATH (on Debian: apt-get install gcc)"
    return None


def interpreted() -> list[str]:
    """Return the modules that ought to be compiled and are not, in this process."""
    found = {name: str(import_module(name).__file__) for name in compiled_modules()}
    return [name for name, file in found.items() if not file.endswith(tuple(EXTENSION_SUFFIXES))]


def refuse_interpreted() -> None:
    """Do nothing if all that ought to be compiled is.

    Raises:
        pytest.UsageError: it is not; the text names the first such module.
    """
    if found := interpreted():
        raise pytest.UsageError(f"--compiled: {len(found)} modules are not compiled, {found[0]} among them")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tarry").addoption(
        "--compiled",
        action="store_true",
        help="refuse to run unless core and the wheel are compiled; see tests/README.md",
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.getoption("--compiled"):
        refuse_interpreted()


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
        raise RuntimeError(f"{' '.join(command)}\nended with {done.returncode}:\n{said}")


def main() -> None:
    parser = argparse.ArgumentParser(description="a virtual environment in which core and the wheel are compiled")
    parser.add_argument("directory", type=Path)
    make_environment(parser.parse_args().directory)


if __name__ == "__main__":
    main()
