"""Docker for the deployment tests: a daemon that answers, Compose, and the project's images, built once per run.

The daemon is the one that `docker` finds by `DOCKER_HOST` or its context. The reason of a skip says what is missing.
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
"""The least privileges, which are enough for all our containers: they do not even need a /tmp."""


def docker(*arguments: str, within_s: float = WITHIN_S, **environment: str) -> str:
    """Run `docker`; return its output."""
    return run("docker", *arguments, within_s=within_s, **environment).strip()


def inspect(thing: str) -> dict[str, Any]:
    """Return the daemon's description of an image or a container."""
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
    """Return why no image can be built; empty if it is possible."""
    if shutil.which("docker") is None:
        return "no docker in PATH"
    try:
        docker("version", within_s=20.0)
    except (Failed, subprocess.TimeoutExpired) as refusal:
        return f"no Docker daemon answers: {str(refusal).splitlines()[-1]}"
    return ""


@cache
def why_no_compose() -> str:
    """Return why Compose is not available; empty if it is."""
    if shutil.which("docker") is None:
        return "no docker in PATH"
    try:
        docker("compose", "version", within_s=20.0)
    except Failed:
        return "docker has no plug-in `compose`"
    return ""


@pytest.fixture(scope="session")
def daemon() -> None:
    """Skip the test if no daemon answers."""
    if reason := why_no_daemon():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def compose() -> None:
    """Skip the test if `docker compose` is missing."""
    if reason := why_no_compose():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def built(daemon: None) -> Iterator[Callable[[str], str]]:
    """Returns the image of a build target, built without BuildKit, so that every Docker can build it."""
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
