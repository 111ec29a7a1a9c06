"""The image of the service: built in both ways, small in what it may, and honest about its health."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tarry import __version__
from tests.support.brokers import wait_until
from tests.support.docker import HARDENED, build, docker, inspect
from tests.support.programs import Failed, run

pytestmark = pytest.mark.deploy

ALONE = ("run", "--rm", "--network=none", *HARDENED)
COMPILERS = "cc gcc c++ g++ clang tcc as ld make rustc cargo go javac"
HEALTHCHECK = ("python", "-I", "/opt/tarry/healthcheck.py")


def test_it_is_built_with_buildkit_as_well(daemon: None) -> None:
    tag = f"tarry-test-buildkit:{uuid4().hex[:8]}"
    try:
        build("service", tag, with_buildkit=True)
    except Failed as refusal:
        if "buildx" in str(refusal) and "missing" in str(refusal):
            pytest.skip("docker has no plug-in `buildx`, which its BuildKit needs")
        raise
    try:
        assert docker(*ALONE, tag, "--version") == f"tarry {__version__} (compiled core)"
    finally:
        docker("image", "rm", "--force", tag)


def test_its_entry_point_is_tarry_and_its_command_serve(service_image: str) -> None:
    config = inspect(service_image)["Config"]
    assert (config["Entrypoint"], config["Cmd"]) == (["tarry"], ["serve"])
    assert docker(*ALONE, service_image, "--version") == f"tarry {__version__} (compiled core)"


def test_it_runs_as_a_user_that_kubernetes_can_tell_is_not_root(service_image: str) -> None:
    user, _, group = inspect(service_image)["Config"]["User"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert docker(*ALONE, "--entrypoint=id", service_image, "-u") == user


def test_the_images_user_cannot_change_its_programs(service_image: str) -> None:
    look = "find /bin /etc /lib /opt /usr -writable -not -type l 2>/dev/null; touch /tmp/somewhere && echo /tmp"
    found = docker("run", "--rm", "--network=none", "--entrypoint=sh", service_image, "-c", look)
    assert found == "/tmp", "without a read-only root file system"  # noqa: S108 (the container's)


def test_it_has_no_compiler_and_no_installer_of_its_own(service_image: str) -> None:
    look = f"for program in {COMPILERS}; do command -v $program; done; ls /opt/tarry/bin"
    found = docker(*ALONE, "--entrypoint=sh", service_image, "-c", look).split()
    assert "tarry" in found
    assert not set(found) & {*COMPILERS.split(), "pip", "uv"}
    assert not [program for program in found if program.startswith("/")]


def test_it_reads_the_file_that_is_mounted_in_its_directory(service_image: str, tmp_path: Path) -> None:
    given = tmp_path / "tarry.toml"
    given.write_text("[service]\nprocesses = 65\n", encoding="utf-8")
    mount = f"--volume={given}:/etc/tarry/tarry.toml:ro"
    with pytest.raises(Failed, match=r"service\.processes"):
        docker(*ALONE, mount, service_image)


@pytest.fixture
def network(daemon: None) -> Iterator[str]:
    name = f"tarry-test-{uuid4().hex[:8]}"
    docker("network", "create", name)
    yield name
    docker("network", "rm", name)


@pytest.fixture
def kafka(network: str) -> Iterator[str]:
    settings = {
        "NODE_ID": "1",
        "PROCESS_ROLES": "broker,controller",
        "CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "ADVERTISED_LISTENERS": "PLAINTEXT://kafka:9092",
        "LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "TRANSACTION_STATE_LOG_MIN_ISR": "1",
    }
    given = (f"--env=KAFKA_{name}={value}" for name, value in settings.items())
    started = docker("run", "--detach", f"--network={network}", "--network-alias=kafka", *given, "apache/kafka:4.1.2")
    yield "kafka:9092"
    docker("rm", "--force", "--volumes", started)


@pytest.fixture
def service(service_image: str, network: str, kafka: str) -> Iterator[str]:
    """A container, hardened, that asks for its health each second."""
    started = docker(
        *("run", "--detach", f"--network={network}", *HARDENED, f"--env=TARRY_KAFKA__BOOTSTRAP_SERVERS={kafka}"),
        *("--health-interval=1s", "--health-timeout=1s", "--health-retries=2", service_image),
    )
    yield started
    docker("rm", "--force", started)


def test_its_health_check_tells_a_live_service_from_one_that_hangs(service: str) -> None:
    def is_said(status: str) -> bool:
        state = inspect(service)["State"]
        assert state["Running"], docker("logs", service)
        return bool(state["Health"]["Status"] == status)

    wait_until(lambda: is_said("healthy"), "healthy", 120.0)
    docker("kill", "--signal=STOP", service)
    wait_until(lambda: is_said("unhealthy"), "unhealthy", 60.0)
    docker("kill", "--signal=CONT", service)
    wait_until(lambda: is_said("healthy"), "healthy again", 60.0)
    wait_until(lambda: is_ready(service), "ready", 60.0)
    docker("stop", "--time=30", service)
    assert inspect(service)["State"]["ExitCode"] == 0, docker("logs", service)


def test_a_job_on_spark_runs_on_a_read_only_root_and_fetches_nothing(
    service: str, service_image: str, spark_image: str, network: str, kafka: str
) -> None:
    wait_until(lambda: is_ready(service), "ready", 120.0)
    here = (f"--network={network}", *HARDENED, "--tmpfs=/tmp:exec", f"--env=TARRY_KAFKA__BOOTSTRAP_SERVERS={kafka}")
    with pytest.raises(Failed, match='"reason": "unknown-target"'):  # nobody made it: a result, and a dead letter
        docker("run", "--rm", *here, service_image, "send", "orders", "{}", "--delay", "1s", "--wait")
    kept = f"tarry-test-lake-{uuid4().hex[:8]}"
    job = f"{kept}-job"
    try:
        arguments = ("--detach", f"--name={job}", *here, f"--volume={kept}:/lake", spark_image)
        docker("run", *arguments, "spark", "archive", "--lake", "/lake")
        ended = docker("wait", job, within_s=600.0)
        said = run("sh", "-c", f"docker logs {job} 2>&1")
        assert ended == "0", said
        assert "fetching" not in said
        tables = docker("run", "--rm", *HARDENED, f"--volume={kept}:/lake", "--entrypoint=ls", spark_image, "/lake")
        assert {"results", "dead"} <= set(tables.split())
    finally:
        docker("rm", "--force", job)
        docker("volume", "rm", "--force", kept)


def is_ready(container: str) -> bool:
    try:
        docker("exec", container, *HEALTHCHECK, "readyz")
    except Failed:
        return False
    return True
