"""The console beside the demo: `tarry api` as a process of its own, on a free port of this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tarry.testing.serve import Serve, ServeConfig

_API: Final = ("tarry", "api", "--config")
_LISTENS_WITHIN_S: Final = 60.0


class _Config(ServeConfig):
    """The service's configuration, with a free port for the API."""

    def toml(self) -> str:
        """Return the text of the file."""
        return "\n".join([super().toml(), "[api]", "port = 0", 'environment = "demo"', ""])


def can_be_shown() -> bool:
    """Return whether the extra `http` is installed, without which there is no console."""
    return all(find_spec(name) is not None for name in ("fastapi", "uvicorn", "jinja2"))


@contextmanager
def console(servers: str, directory: Path, intake: str, partitions: int, group: str) -> Iterator[str]:
    """Serve the console during the block; give its address.

    Args:
        servers: the broker.
        directory: for its configuration and its log.
        intake: the intake that it shows.
        partitions: how many that has.
        group: the service's group.

    Raises:
        ServeError: it did not start.
    """
    process = Serve(_Config(servers, intake, partitions, group), directory, "tarry-api", _API)
    try:
        process.start()
        process.wait_said("api_listening", 1, _LISTENS_WITHIN_S)
        yield f"http://127.0.0.1:{process.events('api_listening')[-1]['port']}"
    finally:
        process.close()
