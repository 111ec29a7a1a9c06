"""Compiles `core` and the wheel into a wheel that is built with `TARRY_COMPILE=1`; without it the wheel is pure.

mypyc runs in a process and a directory of its own, so that nothing of it stays in the tree. The Python files are in
the compiled wheel, too: tracebacks name their lines.

`MYPYC_OPT_LEVEL` is the C compiler's level of optimisation, 3 if it is not set; 0 compiles faster.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES: Final = Path(__file__).resolve().parent / "service"
COMPILED: Final = ("core", "timer/delay_queue.py", "timer/task_list.py", "timer/wheel.py")
"""Below `service/tarry`. All of it is pure: an import contract in pyproject.toml names the same modules."""

COMPILER: Final = ("mypy>=1.18", "setuptools>=77")
"""What a compiled wheel needs to be built, beside hatchling and a C compiler."""

_SWITCH: Final = "TARRY_COMPILE"
# The extension modules are small; this one, in the package as well, is the code of all of them.
_LIBRARY: Final = "tarry.compiled"


def compiled_sources() -> list[Path]:
    """Return the files to compile. Those of the packages themselves are left out: they only import."""
    tarry = SOURCES / "tarry"
    found = [
        file
        for place in COMPILED
        for file in ([tarry / place] if place.endswith(".py") else (tarry / place).rglob("*.py"))
    ]
    return sorted(file for file in found if file.name != "__init__.py")


def compiled_modules() -> list[str]:
    """Return the names of the modules that are compiled."""
    return [".".join(file.relative_to(SOURCES).with_suffix("").parts) for file in compiled_sources()]


class CompilingHook(BuildHookInterface[Any]):
    """Adds the compiled modules to the wheel, and the platform to its name."""

    _directory: TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Return what is installed to build a compiled wheel; none of it for a pure one."""
        return [*COMPILER] if _is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, before the wheel is put together.

        Raises:
            RuntimeError: it would be an editable installation, or the compilation failed.
        """
        if not _is_wanted():
            return
        if version == "editable":
            raise RuntimeError(f"an editable installation runs the tree as it is: unset {_SWITCH}, or build a wheel")
        self._directory = TemporaryDirectory(prefix="tarry-compile-")
        directory = Path(self._directory.name)
        done = subprocess.run([sys.executable, __file__, directory], check=False)  # noqa: S603 - our own file
        if done.returncode:
            raise RuntimeError("core and the wheel do not compile: the lines above say why")
        made = directory / "made"
        for file in made.rglob(f"*{EXTENSION_SUFFIXES[0]}"):
            build_data["force_include"][str(file)] = file.relative_to(made).as_posix()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled: the wheel has it."""
        del version, build_data, artifact_path
        if self._directory is not None:
            self._directory.cleanup()


def _is_wanted() -> bool:
    value = os.environ.get(_SWITCH, "")
    if value not in {"", "0", "1"}:
        raise RuntimeError(f"{_SWITCH} is 1 or 0, not {value}")
    return value == "1"


def _compile(directory: Path) -> None:
    """Compile into `directory/made`; this ends the process if it fails."""
    from mypyc.build import mypycify  # noqa: PLC0415 (only here, and only if it is wanted)
    from setuptools import setup  # type: ignore[import-untyped] # noqa: PLC0415

    # Compiled by relative paths: tracebacks name the file as it is in the wheel, not where the wheel was built.
    shutil.copytree(SOURCES / "tarry", directory / "tarry")
    os.chdir(directory)
    # The package names types of libraries that the environment of a build has not. No build may use those around it, so
    # that all compile alike; only what is compiled is checked. What core imports from a library (cronsim) has any type.
    options = [
        "--config-file=",
        "--follow-imports=silent",
        "--no-site-packages",
        "--disable-error-code=import-not-found",
        "--explicit-package-bases",
        f"--python-version={sys.version_info[0]}.{sys.version_info[1]}",
    ]
    extensions = mypycify(
        [*options, *[str(file.relative_to(SOURCES)) for file in compiled_sources()]],
        opt_level=os.environ.get("MYPYC_OPT_LEVEL", "3"),
        debug_level="0",
        group_name=_LIBRARY,
    )
    for extension in extensions:
        # Nobody reads warnings about generated C, and mypyc makes them errors. Also without them gcc would look for
        # misleading indentation, and take twice as long.
        extension.extra_compile_args += ["-w", "-Wno-misleading-indentation"]
    setup(
        name="tarry",
        packages=[],
        ext_modules=extensions,
        script_args=["--quiet", "build_ext", "--build-lib", "made", "--build-temp", "temporary"],
    )


if __name__ == "__main__":
    _compile(Path(sys.argv[1]))
    sys.stdout.flush()
    # Nothing is torn down: to free all that mypy has in memory takes as long as its work.
    os._exit(0)
