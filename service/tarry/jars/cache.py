"""Jars, fetched once and kept in the user's cache directory.

The cache of a set is a directory of jars and a file of their checksums, in the form that `sha256sum -c` reads. It is
made under another name and renamed when complete, so it is whole or absent, and a lock lets one process at
a time make it. Checksums are compared at every start (0.1 s for 43 MB): a damaged cache is fetched anew
instead of failing inside Java.
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
"""Puts all jars into the empty directory that it is given."""

Progress = Callable[[str], None]
"""Is told, in one line, of a step that takes a while."""


def cache_directory(name: str, environ: Mapping[str, str] | None = None) -> Path:
    """Where a set of jars is kept: `tarry/NAME` under `$XDG_CACHE_HOME`, else under `~/.cache`.

    Raises:
        UsageError: the user has no home directory.
    """
    chosen = Path((os.environ if environ is None else environ).get("XDG_CACHE_HOME", ""))
    if not chosen.is_absolute():  # the XDG specification: what is not absolute is to be ignored
        try:
            chosen = Path.home() / ".cache"
        except RuntimeError as error:
            raise UsageError("there is no home directory to keep jars in: set XDG_CACHE_HOME") from error
    return chosen / "tarry" / name


def cached_jars(cache: Path, fetch: Fetch, on_progress: Progress, what: str) -> tuple[Path, ...]:
    """The jars in `cache`, fetched first if it is absent, incomplete or damaged.

    Safe between processes: the second waits for the first and then uses what it made.

    Args:
        cache: the directory; its parent is made.
        fetch: called at most once.
        on_progress: told before anything that takes a while.
        what: whose jars they are, and how large, for people.

    Raises:
        UsageError: the directory cannot be written, or what `fetch` raises.
    """
    if jars := _whole(cache):
        return jars
    try:
        with _locked(cache, on_progress, what):
            return _whole(cache) or _make(cache, fetch, on_progress, what)
    except OSError as error:
        raise UsageError(
            f"jars cannot be kept in {cache}: {error.strerror or error}; "
            "set XDG_CACHE_HOME to a directory that can be written"
        ) from error


def _whole(cache: Path) -> tuple[Path, ...]:
    """The jars if each is as its checksum says, else nothing."""
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
    for abandoned in cache.parent.glob(f"{prefix}*"):  # whoever made it held our lock, and died
        shutil.rmtree(abandoned)
    on_progress(f"{'repairing' if cache.exists() else 'fetching'} {what} in {cache}")
    with tempfile.TemporaryDirectory(prefix=prefix, dir=cache.parent) as work:
        fresh = Path(work, "jars")
        fresh.mkdir()
        fetch(fresh)
        jars = sorted(fresh.glob("*.jar"))
        if not jars:
            raise UsageError("Ivy fetched no jars: remove the cache directory and try again")
        sums = "".join(f"{_sha256(jar)}  {jar.name}\n" for jar in jars)
        (fresh / SUMS).write_text(sums, encoding="utf-8")
        if cache.exists():
            cache.rename(Path(work, "damaged"))
        fresh.rename(cache)
    return tuple(cache / jar.name for jar in jars)


@contextmanager
def _locked(cache: Path, on_progress: Progress, what: str) -> Iterator[None]:
    cache.parent.mkdir(parents=True, exist_ok=True)
    with (cache.parent / f"{cache.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_progress(f"waiting for another process that fetches {what}")
            fcntl.flock(lock, fcntl.LOCK_EX)  # freed by the kernel when its holder ends, however it ends
        yield


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
