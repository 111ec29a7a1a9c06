"""Keeps jars in the user's cache directory, so that they are downloaded only once.

The cache of a set of jars is a directory with the jars and a file of their checksums in the format of `sha256sum -c`.
It is created under a temporary name and renamed when it is complete, so that it is either complete or absent. A lock
lets only one process create it at a time. Each use verifies the checksums (0.1 s for 43 MB), so that a damaged cache is
downloaded again instead of failing inside Java.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tarry.errors import UsageError

SUMS = "SHA256SUMS"

Fetch = Callable[[Path], None]
"""Downloads all jars into an empty directory, its argument."""

Progress = Callable[[str], None]
"""Called with one line of text before a step that takes a while."""


def cache_directory(name: str, environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory for a set of jars: `tarry/NAME` under `$XDG_CACHE_HOME`, else under `~/.cache`.

    Raises:
        UsageError: the user has no home directory.
    """
    chosen = Path((os.environ if environ is None else environ).get("XDG_CACHE_HOME", ""))
    if not chosen.is_absolute():  # the XDG specification says to ignore relative paths
        try:
            chosen = Path.home() / ".cache"
        except RuntimeError as error:
            raise UsageError("no home directory for the cache of jars: set XDG_CACHE_HOME") from error
    return chosen / "tarry" / name


def cached_jars(cache: Path, fetch: Fetch, on_progress: Progress, what: str) -> tuple[Path, ...]:
    """Return the jars in `cache`. If it is absent, incomplete or damaged, download them first.

    Safe between processes: a second process waits for the first one and then uses its jars.

    Args:
        cache: the directory; its parent is created.
        fetch: downloads the jars; called at most once.
        on_progress: called with one line of text before a step that takes a while.
        what: a description of the jars with their size, for people.

    Raises:
        UsageError: the directory cannot be written. Errors of `fetch` are raised as they are.
    """
    if jars := _whole(cache):
        return jars
    try:
        with locked(cache, on_progress, what):
            return _whole(cache) or _make(cache, fetch, on_progress, what)
    except OSError as error:
        raise UsageError(
            f"cannot write jars to {cache}: {error.strerror or error}; set XDG_CACHE_HOME to a writable directory"
        ) from error


def _whole(cache: Path) -> tuple[Path, ...]:
    """Return the jars if all checksums match, else an empty tuple."""
    try:
        lines = (cache / SUMS).read_text(encoding="utf-8").splitlines()
        jars = []
        for line in lines:
            checksum, _, name = line.partition("  ")
            jars.append(cache / name)
            if _sha256(jars[-1]) != checksum:
                return ()
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(jars)


def _make(cache: Path, fetch: Fetch, on_progress: Progress, what: str) -> tuple[Path, ...]:
    prefix = f".{cache.name}."
    for abandoned in cache.parent.glob(f"{prefix}*"):  # left by a process that died while it held this lock
        shutil.rmtree(abandoned)
    on_progress(f"{'repairing' if cache.exists() else 'fetching'} {what} in {cache}")
    with tempfile.TemporaryDirectory(prefix=prefix, dir=cache.parent) as work:
        fresh = Path(work, "jars")
        fresh.mkdir()
        fetch(fresh)
        jars = sorted(fresh.glob("*.jar"))
        if not jars:
            raise UsageError(f"Ivy downloaded no jars: delete {cache} and try again")
        sums = "".join(f"{_sha256(jar)}  {jar.name}\n" for jar in jars)
        (fresh / SUMS).write_text(sums, encoding="utf-8")
        if cache.exists():
            cache.rename(Path(work, "damaged"))
        fresh.rename(cache)
    return tuple(cache / jar.name for jar in jars)


@contextmanager
def locked(cache: Path, on_progress: Progress, what: str) -> Iterator[None]:
    """Let no other process make a file or directory of the cache inside the block; wait if another one does."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    with (cache.parent / f"{cache.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_progress(f"waiting for another process that fetches {what}")
            fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel frees the lock when its holder ends, even after a kill
        yield


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
