"""`deploy/k8s` held against the service itself: what it reads, how long it takes, what it needs of Kafka."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin._resource import ResourceType
from typer.main import get_command

from deploy import render
from tarry.cli.check.rights import needed_rights
from tarry.cli.main import app
from tarry.config import Config, load
from tarry.errors import ConfigError
from tarry.kafka.intake_topics import (
    DEFAULT_MAX_MESSAGE_BYTES,
    control_topic,
    operations_topic,
    status_topic,
    topics_of,
)
from tarry.kafka.settings import QUEUE_KBYTES
from tarry.service.app import geometry_of
from tarry.service.supervisor.supervisor import TimeLimits
from tarry.service.worker.parts import DRAIN_QUEUE_KBYTES
from tests.support.grants import documented
from tests.support.manifests import mib, of_kind, pod_templates, the, the_api_s

PODS = dict(pod_templates())
SERVICE = PODS["tarry"]["spec"]
INTERPRETER_MIB = 59
"""A worker at rest, in docs/performance.md."""
PROMISED_END_S = 10
"""The time that docs/operations.md gives for the end after SIGTERM."""


@pytest.fixture(scope="module")
def values() -> Any:
    return yaml.safe_load(render.VALUES.read_text(encoding="utf-8"))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "tarry.toml"
    path.write_text(the("ConfigMap")["data"]["tarry.toml"], encoding="utf-8")
    return load(path, {})


def test_the_service_reads_the_config_map_and_finds_what_the_values_say(config: Config, values: Any) -> None:
    said = values["config"]
    assert config.kafka.bootstrap_servers == said["kafka"]["bootstrap_servers"]
    assert config.kafka.options == said["kafka"]["options"]
    assert [intake.topic for intake in config.intakes] == [intake["topic"] for intake in said["intake"]]
    assert [intake.partitions for intake in config.intakes] == [intake["partitions"] for intake in said["intake"]]
    assert config.http.host == "0.0.0.0"  # noqa: S104 - a pod is asked from outside
    assert config.http.port == SERVICE["containers"][0]["ports"][0]["containerPort"]


def test_the_api_finds_its_files_and_is_reached_from_outside(tmp_path: Path) -> None:
    path = tmp_path / "tarry.toml"
    path.write_text(the("ConfigMap")["data"]["tarry.toml"], encoding="utf-8")
    (container,) = PODS["tarry-api"]["spec"]["containers"]
    api = load(path, {one["name"]: one.get("value", "said") for one in container["env"]}).api
    assert (api.host, api.port) == ("0.0.0.0", container["ports"][0]["containerPort"])  # noqa: S104
    mounts = {one["mountPath"] for one in container["volumeMounts"]}
    assert {str(Path(api.tokens).parent), str(Path(api.session_keys).parent)} <= mounts
    assert the_api_s("Ingress")["spec"]["rules"][0]["host"] in api.hosts


@pytest.mark.parametrize("name", PODS)
def test_the_service_takes_the_variables_of_every_pod(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tarry.toml"
    path.write_text(the("ConfigMap")["data"]["tarry.toml"], encoding="utf-8")
    env = PODS[name]["spec"]["containers"][0]["env"]
    variables = {one["name"]: one.get("value", "said") for one in env}
    options = load(path, variables).kafka.properties()
    assert (options["sasl.username"], options["sasl.password"]) == ("said", "said")


def test_variables_that_kubernetes_makes_of_a_service_named_tarry_would_be_refused() -> None:
    """Why no pod has them."""
    with pytest.raises(ConfigError):
        load(None, {"TARRY_PORT": "tcp://10.0.0.1:8080"})


@pytest.mark.parametrize("name", PODS)
def test_the_commands_of_pods_are_commands_with_options_that_there_are(name: str) -> None:
    args = list(PODS[name]["spec"]["containers"][0]["args"])
    command: Any = get_command(app)
    while hasattr(command, "commands") and not args[0].startswith("-"):
        command = command.commands[args.pop(0)]
    context = command.make_context("tarry", args)
    assert str(context.params["config"]) == "/etc/tarry/tarry.toml"


def test_a_pod_that_is_ended_has_time_to_hand_over() -> None:
    grace_s = SERVICE["terminationGracePeriodSeconds"]
    assert TimeLimits().hand_over_ms / 1_000 < PROMISED_END_S < grace_s


def test_a_new_one_is_ready_before_an_old_one_goes() -> None:
    assert the("Deployment")["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}


def test_probes_ask_for_what_is_answered_and_leave_a_hanging_worker_to_the_supervisor() -> None:
    container = SERVICE["containers"][0]
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert container["startupProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    live = container["livenessProbe"]
    assert live["periodSeconds"] * (live["failureThreshold"] - 1) > TimeLimits().silence_ms / 1_000


def test_memory_is_enough_for_the_budget_of_each_process(config: Config) -> None:
    beside = yaml.safe_load((render.CHART / "values.yaml").read_text(encoding="utf-8"))["resources"]
    each = config.service.memory_budget_bytes // 2**20 + beside["memoryBesideBudgetMiB"]
    limit = mib(SERVICE["containers"][0]["resources"]["limits"]["memory"])
    assert limit == config.service.processes * each + beside["memorySupervisorMiB"]
    request = mib(SERVICE["containers"][0]["resources"]["requests"]["memory"])
    assert request == config.service.processes * beside["memoryBesideBudgetMiB"] + beside["memorySupervisorMiB"]
    fetched_ahead = QUEUE_KBYTES + DRAIN_QUEUE_KBYTES
    assert beside["memoryBesideBudgetMiB"] > fetched_ahead / 1024 + INTERPRETER_MIB


def test_there_are_partitions_for_as_many_workers_as_the_autoscaler_makes(config: Config) -> None:
    most = the("HorizontalPodAutoscaler")["spec"]["maxReplicas"] * config.service.processes
    assert most <= sum(intake.partitions for intake in config.intakes)


def test_the_autoscaler_never_looks_at_what_waits() -> None:
    metrics = the("HorizontalPodAutoscaler")["spec"]["metrics"]
    assert {one["type"] for one in metrics} == {"Resource", "Pods"}
    names = {one[one["type"].lower()].get("name") or one["pods"]["metric"]["name"] for one in metrics}
    assert names == {"cpu", "tarry_position_lag_messages"}
    assert "replicas" not in the("Deployment")["spec"], "it would be set back at each apply"


def test_kafka_topics_are_those_that_the_service_would_make(config: Config) -> None:
    there = {one["spec"]["topicName"]: one["spec"] for one in of_kind("KafkaTopic")}
    wanted = [
        topic
        for intake in config.intakes
        for topic in topics_of(
            intake.topic,
            intake.partitions,
            intake.replication,
            geometry_of(config, intake),
            fixed_delay=intake.is_fixed,
            max_bytes=DEFAULT_MAX_MESSAGE_BYTES,
        )
    ]
    beside = status_topic, control_topic, operations_topic
    wanted += [make(one.topic, one.replication) for one in config.intakes for make in beside]
    assert set(there) == {topic.name for topic in wanted}
    for topic in wanted:
        spec = there[topic.name]
        assert (spec["partitions"], spec["replicas"]) == (topic.partitions, topic.replication)
        assert {
            name: str(value).lower() if value is False else str(value) for name, value in spec["config"].items()
        } == {**topic.config, **topic.extra}


def granted_to(name: str) -> dict[tuple[str, str, str], set[str]]:
    """The operations of a KafkaUser, by type, name and pattern of the resource."""
    user = next(one for one in of_kind("KafkaUser") if one["metadata"]["name"] == name)
    granted: dict[tuple[str, str, str], set[str]] = {}
    for acl in user["spec"]["authorization"]["acls"]:
        resource = acl["resource"]
        key = (resource["type"], resource["name"], resource["patternType"])
        granted.setdefault(key, set()).update(acl["operations"])
    return granted


def test_the_service_s_user_may_do_what_it_needs_and_no_more(config: Config) -> None:
    group = config.service.group
    wanted = {
        ("group", group, "literal"): {"Read"},
        ("transactionalId", f"{group}.", "prefix"): {"Write"},
    }
    for topic, rights in needed_rights(config).items():
        names = [operation.name.title().replace("_", "") for operation in rights.must | rights.should]
        wanted["topic", topic, "literal"] = set(names)
    assert granted_to("tarry") == wanted


@pytest.mark.parametrize(
    ("user", "heading"),
    [("tarry-api", "What the API may do"), ("tarry-spark", "What Spark jobs that only read may do")],
)
def test_the_users_of_api_and_jobs_may_do_what_is_documented_and_no_more(
    config: Config, user: str, heading: str
) -> None:
    wanted: dict[tuple[str, str, str], set[str]] = {}
    for intake in config.intakes:
        names = {
            "<intake>": [intake.topic],
            "<target>": [intake.target] if intake.target else list(intake.targets),
            "<group>": [config.service.group],
            "<level>": [str(level) for level in range(1, geometry_of(config, intake).levels + 1)],
        }
        for grant in documented(heading, names):
            kind = "transactionalId" if grant.kind == ResourceType.TRANSACTIONAL_ID else grant.kind.name.lower()
            key = (kind, grant.name, "prefix" if grant.is_prefix else "literal")
            wanted.setdefault(key, set()).add(grant.operation.name.title().replace("_", ""))
    assert granted_to(user) == wanted
