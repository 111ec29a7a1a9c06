"""Docker for the tests of what is deployed: a daemon that answers, Compose, and the project's images, built once a run.

The daemon is the one that `docker` finds, by `DOCKER_HOST` or its context. What is missing is said by whoever skips.
"""

import json
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any, Final

import pytest

from tests.support.programs import WITHIN_S, Failed, run

BUILD_WITHIN_S: Final = 1_800.0
HARDENED: Final = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
"""What no container of ours needs more than; no /tmp either."""


def docker(*arguments: str, within_s: float = WITHIN_S, **environment: str) -> str:
    """What `docker` said."""
    return run("docker", *arguments, within_s=within_s, **environment).strip()


def inspect(thing: str) -> dict[str, Any]:
    """What the daemon knows of an image or a container."""
    found: list[dict[str, Any]] = json.loads(docker("inspect", thing))
    return found[0]


def build(target: str, tag: str, *, with_buildkit: bool) -> None:
    """Build a target of service/Dockerfile."""
    docker(
        *("build", "--quiet", "--file", "service/Dockerfile", "--target", target, "--tag", tag, "."),
        within_s=BUILD_WITHIN_S,
        DOCKER_BUILDKIT=str(int(with_buildkit)),
    )


@cache
def why_no_daemon() -> str:
    """Why no image can be built; empty where one can."""
    if shutil.which("docker") is None:
        return "no docker in PATH"
    try:
        docker("version", within_s=20.0)
    except (Failed, subprocess.TimeoutExpired) as refusal:
        return f"no Docker daemon answers: {str(refusal).splitlines()[-1]}"
    return ""


@cache
def why_no_compose() -> str:
    """Why there is no Compose; empty where there is."""
    if shutil.which("docker") is None:
        return "no docker in PATH"
    try:
        docker("compose", "version", within_s=20.0)
    except Failed:
        return "docker has no plug-in `compose`"
    return ""


@pytest.fixture(scope="session")
def daemon() -> None:
    """A daemon answers."""
    if reason := why_no_daemon():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def compose() -> None:
    """There is `docker compose`."""
    if reason := why_no_compose():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def built(daemon: None) -> Iterator[Callable[[str], str]]:
    """Gives the image of a target, built without BuildKit, which every Docker can."""
    with ExitStack() as until_the_end:

        @cache
        def image(target: str) -> str:
            tag = f"tarry-test-{target}:{uuid.uuid4().hex[:8]}"
            build(target, tag, with_buildkit=False)
            until_the_end.callback(docker, "image", "rm", "--force", tag)
            return tag

        yield image


@pytest.fixture(scope="session")
def service_image(built: Callable[[str], str]) -> str:
    """The service's image."""
    return built("service")


@pytest.fixture(scope="session")
def spark_image(built: Callable[[str], str]) -> str:
    """The image of the jobs on Spark."""
    return built("spark")
