"""A real PostgreSQL for the tests that need one, from Debian's package or from PATH.

PostgreSQL refuses to run as root. If the tests run as root, it runs as `postgres` or `nobody`, in a new directory below
the system's temporary directory, because other users cannot enter pytest's. If PostgreSQL is not installed, the tests
fail; with ALLOW_SKIP=1 they are skipped.
"""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from tarry.devbroker.ports import free_port
from tests.support.brokers import is_alive, wait_until
from tests.support.lacking import lacks

_DEBIAN: Final = "/usr/lib/postgresql"


class Postgres:
    """A server on 127.0.0.1 with new data. It never syncs: commits survive `kill`, but not a power cut.

    Args:
        programs: the directory of `initdb` and `postgres`.
    """

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._user = _other_user()
        self._directory = Path(tempfile.mkdtemp(prefix="tarry-postgres-", dir=_open_to_all()))
        self._data = self._directory / "data"
        self._log = self._directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            shutil.chown(self._directory, self._user)
        self._port = free_port()
        self.conninfo = f"host=127.0.0.1 port={self._port} user=tarry dbname=postgres"
        """The connection string for psycopg."""
        options = ("-U", "tarry", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        self._run("initdb", "-D", str(self._data), *options)

    def start(self) -> "Postgres":
        """Start it, and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._programs / "postgres",
                    *("-D", self._data, "-p", str(self._port), "-c", "listen_addresses=127.0.0.1"),
                    *("-c", "unix_socket_directories=", "-c", "fsync=off"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._directory,
                start_new_session=True,
            )
        wait_until(self._answers, "PostgreSQL answers", 60.0)
        return self

    def kill(self) -> None:
        """kill -9, of the server and all its processes."""
        process = self._process
        assert process is not None
        found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        children = [pid for pid in found if _parent(pid) == process.pid]
        process.kill()
        process.wait(30)
        for child in children:
            with suppress(ProcessLookupError):  # they end by themselves, too
                os.kill(child, signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, children)), "PostgreSQL's processes are gone")
        self._process = None

    def close(self) -> None:
        """End it even if clients are connected, and remove its data."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(30)
        shutil.rmtree(self._directory)

    def rows(self, query: str, *values: object) -> list[Any]:
        """Run a query in a committed transaction; return its rows."""
        with psycopg.connect(self.conninfo, connect_timeout=5) as connection:
            cursor = connection.execute(query.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text(encoding="utf-8")
        try:
            return self.rows("SELECT 1") == [(1,)]
        except psycopg.OperationalError:
            return False

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments],
            user=self._user,
            cwd=self._directory,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture
def start_postgres() -> Iterator[Callable[[], Postgres]]:
    """Starts servers that end with the test."""
    found = programs()
    with ExitStack() as until_the_end:

        def start() -> Postgres:
            server = Postgres(found)
            until_the_end.callback(server.close)
            return server.start()

        yield start


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[Postgres]:
    """A server that all tests share; a test must not harm it."""
    server = Postgres(programs())
    try:
        yield server.start()
    finally:
        server.close()


def programs() -> Path:
    """Return the directory of `initdb` and `postgres`; fail or skip the test if they are missing."""
    found = [Path(path).resolve().parent for path in [shutil.which("initdb")] if path]
    found += sorted(Path(_DEBIAN).glob("*/bin"), reverse=True)
    whole = [each for each in found if all((each / name).exists() for name in ("initdb", "postgres"))]
    if not whole:
        lacks(f"no PostgreSQL: neither in PATH nor below {_DEBIAN} (Debian's package `postgresql`)")
    return whole[0]


def _other_user() -> str | None:
    """Return the user for PostgreSQL; None if the tests do not run as root."""
    if os.geteuid() != 0:
        return None
    users = {user.pw_name for user in pwd.getpwall()}
    return next(user for user in ("postgres", "nobody") if user in users)


def _open_to_all() -> str:
    """Create a directory that another user can enter."""
    chosen = Path(tempfile.gettempdir()).resolve()
    is_open = all(each.stat().st_mode & stat.S_IXOTH for each in (chosen, *chosen.parents))
    return str(chosen) if is_open else "/tmp"  # noqa: S108 (a name of its own is made in it)


def _parent(pid: int) -> int:
    try:
        return int(
            Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[1]
        )
    except (FileNotFoundError, ProcessLookupError):
        return 0
