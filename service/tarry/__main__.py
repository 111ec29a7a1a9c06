"""The command `tarry`, also as `python -m tarry`."""

import sys
from typing import Final

_OF_THE_SERVICE: Final = {"prometheus_client", "pydantic", "rich", "structlog", "typer"}
"""The distributions of the extra `service`, by the names of their modules. The client needs none of them."""

_OF_HTTP: Final = {
    *("fastapi", "starlette", "uvicorn", "httptools", "uvloop", "itsdangerous", "jinja2", "jwt", "httpx"),
    *("sse_starlette", "multipart", "python_multipart", "anyio"),
}
"""The distributions of the extra `http`, in the same way: only `tarry api` needs them."""


def main() -> None:
    """Run the command line, or say in one line what to install for it; the exit code is 2 then."""
    try:
        from tarry.cli.main import main as run  # noqa: PLC0415 (it may not be installed)

        run()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in _OF_THE_SERVICE | _OF_HTTP:
            raise
        extra = "service" if name in _OF_THE_SERVICE else "http"
        sys.stderr.write(f"tarry: the command needs {error.name}: pip install 'tarry[{extra}]'\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
