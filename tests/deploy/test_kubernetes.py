"""The chart by helm, and `deploy/k8s` on a real API server: every object, and a bare pod of each template.

Needs `helm`, and `kubectl` with a KUBECONFIG whose user may make namespaces and custom resource definitions. No pod
has to run: objects are admitted, defaulted and validated. So a server without nodes or controllers will do. What is
made stays in a namespace of the run's own, which is deleted in the end.
"""

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import render
from tarry.config import load
from tarry.kafka.intake_topics import (
    DEFAULT_MAX_MESSAGE_BYTES,
    control_topic,
    operations_topic,
    status_topic,
    topics_of,
)
from tarry.service.app import geometry_of
from tests.support.brokers import wait_until
from tests.support.manifests import CRDS, Object, is_of_api, objects, pod_templates

pytestmark = pytest.mark.deploy

TIMEOUT_S = 120


@pytest.fixture(scope="module")
def helm() -> None:
    if shutil.which("helm") is None:
        pytest.skip("there is no helm")


# -- the chart --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("helm")
def test_helm_makes_what_is_committed() -> None:
    made = render.files_of(render.template())
    there = {path.relative_to(render.MANIFESTS).as_posix(): path for path in render.MANIFESTS.rglob("*.yaml")}
    assert set(made) == set(there)
    for name, text in made.items():
        assert there[name].read_text(encoding="utf-8") == text, f"{name}: make manifests"


@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize("values", [None, render.VALUES])
def test_helm_has_nothing_to_complain_of(values: Path | None) -> None:
    options = [] if values is None else ["--values", str(values)]
    run = subprocess.run(
        ["helm", "lint", str(render.CHART), "--strict", *options], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout
    assert "[WARNING]" not in run.stdout
    assert "[ERROR]" not in run.stdout


@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize(
    ("overflow", "delay"),
    [
        ({}, "60s"),
        ({}, "61s"),
        ({}, "10m40s"),
        ({}, "10m40s1ms"),
        ({}, "2h50m40s"),
        ({}, "45h30m40s1ms"),
        ({}, "30d"),
        ({}, "36500d"),
        ({"width": "2s", "size": 2, "from": "2s"}, "1.5h"),
        ({"width": "1h", "size": 32, "from": "1h"}, "365d"),
    ],
)
def test_kafka_topics_are_those_that_the_service_would_make(
    overflow: dict[str, object], delay: str, tmp_path: Path
) -> None:
    """The chart counts levels by itself: it has to come to what the service comes to."""
    intake = {"topic": "An_intake", "partitions": 3, "replication": 2, "max_delay": delay, "targets": ["a"]}
    values = tmp_path / "values.yaml"
    values.write_text(
        yaml.safe_dump({"config": {"overflow": overflow, "intake": [intake]}, "strimzi": {"enabled": True}}),
        encoding="utf-8",
    )
    made = [one for one in yaml.safe_load_all(render.template(values)) if one]
    path = tmp_path / "tarry.toml"
    path.write_text(_the(made, "ConfigMap")["data"]["tarry.toml"], encoding="utf-8")
    config = load(path, {})
    geometry = geometry_of(config, config.intakes[0])
    wanted = topics_of("An_intake", 3, 2, geometry, fixed_delay=False, max_bytes=DEFAULT_MAX_MESSAGE_BYTES)
    wanted += [make("An_intake", 2) for make in (status_topic, control_topic, operations_topic)]
    topics = [one["spec"] for one in made if one["kind"] == "KafkaTopic"]
    assert {one["topicName"]: one["partitions"] for one in topics} == {one.name: one.partitions for one in wanted}


@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("terminationGracePeriodSeconds=5", "the hand-over takes up to 10 s"),
        ("autoscaling.maxReplicas=100", "the others would be idle"),
        ("config.service.transaction_interval_ms=0.5", "0.5 is not a whole number"),
        ('config.intake[0].targets=["a*b"]', "Kafka has no ACL for a*b"),
        ("config.intake[0].targets=[]", "intake tarry.delayed: set targets"),
        ('config.kafka.options={"sasl.password":"seen by everybody"}', "sasl.password is a secret"),
        ('api.existingSecret=""', "nobody may use the API"),
        ('api.ingress.host="other.example.com"', "config.api.hosts: must list other.example.com"),
        ('api.ingress.tlsSecret=""', "tokens must not travel unencrypted"),
        ("replica=3", "replica"),
    ],
)
def test_values_that_cannot_work_are_refused_with_the_reason(setting: str, says: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        render.template(render.VALUES, setting)
    assert says in refused.value.stderr


@pytest.mark.usefixtures("helm")
def test_a_secret_that_is_there_gives_the_users_password_to_strimzi_too() -> None:
    options = {"sasl.username": "username", "sasl.password": "word"}
    secret = {"existing": "made-elsewhere", "options": options}
    made = [one for one in yaml.safe_load_all(render.template(render.VALUES, f"secret={json.dumps(secret)}")) if one]
    assert [one for one in made if one["kind"] == "Secret"] == []
    [job] = [one["spec"]["template"]["spec"] for one in made if one["kind"] == "Job"]
    [container] = job["containers"]
    assert {one["valueFrom"]["secretKeyRef"]["name"] for one in container["env"]} == {"made-elsewhere"}
    [user] = [one for one in made if one["kind"] == "KafkaUser" and one["metadata"]["name"] == "tarry"]
    given = user["spec"]["authentication"]["password"]["valueFrom"]["secretKeyRef"]
    assert given == {"name": "made-elsewhere", "key": "word"}


@pytest.mark.usefixtures("helm")
def test_further_ways_out_are_those_of_all_pods() -> None:
    rule = {"ports": [{"port": 443}], "to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}
    made = [
        one
        for one in yaml.safe_load_all(render.template(render.VALUES, f"networkPolicy.egress={json.dumps([rule])}"))
        if one and one["kind"] == "NetworkPolicy" and not one["metadata"]["name"].endswith("-spark")
    ]
    assert made
    assert all(rule in one["spec"]["egress"] for one in made)


@pytest.mark.usefixtures("helm")
def test_what_an_operator_adds_reaches_every_pod() -> None:
    digest = f"sha256:{'a' * 64}"
    made = render.template(
        render.VALUES,
        f'image.digest="{digest}"',
        f'spark.image.digest="{digest}"',
        'tls.user="tarry"',
        'priorityClassName="high"',
        'affinity={"podAffinity":{}}',
        'serviceAccount.annotations={"a/role":"b"}',
        'extraEnv=[{"name":"SSL_CERT_DIR","value":"/certs"}]',
        'extraVolumes=[{"name":"certs","emptyDir":{}}]',
        'extraVolumeMounts=[{"name":"certs","mountPath":"/certs"}]',
    )
    found = [one for one in yaml.safe_load_all(made) if one]
    accounts = [one["metadata"]["annotations"] for one in found if one["kind"] == "ServiceAccount"]
    assert len(accounts) == 2
    assert all(annotations["a/role"] == "b" for annotations in accounts)
    pods = [one["spec"] for one in found if one["kind"] in {"Deployment", "Job"}]
    pods += [one["spec"]["jobTemplate"]["spec"] for one in found if one["kind"] == "CronJob"]
    assert len(pods) == 5
    for spec in (pod["template"]["spec"] for pod in pods):
        [container] = spec["containers"]
        assert (spec["priorityClassName"], spec["affinity"]) == ("high", {"podAffinity": {}})
        assert container["image"].endswith(f"@{digest}")
        assert {"name": "SSL_CERT_DIR", "value": "/certs"} in container["env"]
        assert {"certs", "user"} <= {one["name"] for one in spec["volumes"]}
        assert {"/certs", "/etc/tarry/user"} <= {one["mountPath"] for one in container["volumeMounts"]}


@pytest.mark.usefixtures("helm")
def test_each_pod_can_read_its_own_secret_from_files() -> None:
    made = [one for one in yaml.safe_load_all(render.template(render.VALUES, "secret.asFiles=true")) if one]
    secrets = {"Deployment": "tarry-sasl", "Job": "tarry-topics", "CronJob": "tarry-spark-sasl"}
    for one in made:
        if one["kind"] not in secrets:
            continue
        secret = "tarry-api-sasl" if is_of_api(one) else secrets[one["kind"]]
        owner = one["spec"]["jobTemplate"]["spec"] if one["kind"] == "CronJob" else one["spec"]
        spec = owner["template"]["spec"]
        [container] = spec["containers"]
        assert {"name": "secret", "secret": {"secretName": secret}} in spec["volumes"]
        assert {"name": "secret", "mountPath": "/etc/tarry/secret", "readOnly": True} in container["volumeMounts"]
        assert all("valueFrom" not in variable for variable in container["env"])
        variables = {variable["name"]: variable["value"] for variable in container["env"]}
        assert variables.popitem()[1].startswith("/etc/tarry/secret/")


# -- an API server ----------------------------------------------------------------------------------------------------


class Cluster:
    """An API server, and a namespace of this run's that enforces the restricted pod standard."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def kubectl(self, *arguments: str, given: list[Object] | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl; objects that are given go to its input."""
        return subprocess.run(
            ["kubectl", *arguments],
            input=None if given is None else yaml.safe_dump_all(given),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def apply(self, made: list[Object]) -> subprocess.CompletedProcess[str]:
        """Apply objects, in this run's namespace."""
        return self.run("apply", made, "--validate=strict")

    def run(self, verb: str, made: list[Object], *options: str) -> subprocess.CompletedProcess[str]:
        """Do with objects what the verb says, in this run's namespace."""
        return self.kubectl(verb, *options, "-f", "-", given=[self._moved(one) for one in made])

    def _moved(self, one: Object) -> Object:
        metadata = dict(one["metadata"])
        if one["kind"] == "Namespace":
            metadata["name"] = self.namespace
        elif one["kind"] != "CustomResourceDefinition":
            metadata["namespace"] = self.namespace
        return {**one, "metadata": metadata}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if shutil.which("kubectl") is None or not os.environ.get("KUBECONFIG"):
        pytest.skip("there is no kubectl, or KUBECONFIG is not set")
    cluster = Cluster(f"tarry-{uuid.uuid4().hex[:8]}")
    answer = cluster.kubectl("get", "--raw=/readyz", "--request-timeout=20s")
    if answer.returncode:
        pytest.skip(f"no API server answers: {answer.stderr.strip()}")
    there = cluster.kubectl("get", "crd", "--selector=tarry-tests!=stub", "--output=name").stdout.split()
    if real := {f"customresourcedefinition.apiextensions.k8s.io/{one['metadata']['name']}" for one in objects(CRDS)} & {
        *there
    }:
        pytest.skip(f"a cluster of somebody's: it has {', '.join(sorted(real))}")
    crds = cluster.apply(objects(CRDS))
    assert crds.returncode == 0, crds.stderr
    waited = cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS))
    assert waited.returncode == 0, waited.stderr
    yield cluster
    cluster.kubectl("delete", "namespace", cluster.namespace, "--wait=false")


@pytest.fixture(scope="module")
def applied(cluster: Cluster) -> subprocess.CompletedProcess[str]:
    """All of `deploy/k8s`; the namespace is among it, and comes first."""
    return cluster.apply(objects())


def test_all_of_it_is_taken_without_a_warning(applied: subprocess.CompletedProcess[str]) -> None:
    assert (applied.returncode, applied.stderr) == (0, "")
    assert len(applied.stdout.splitlines()) == len(objects())


def test_the_api_server_stores_the_objects_unchanged(
    cluster: Cluster, applied: subprocess.CompletedProcess[str]
) -> None:
    """Applied again, nothing would change."""
    assert applied.returncode == 0
    again = cluster.run("diff", objects())
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


@pytest.mark.parametrize("name", [name for name, _ in pod_templates()])
def test_the_namespace_takes_a_bare_pod_of_each_template_without_a_warning(
    cluster: Cluster, applied: subprocess.CompletedProcess[str], name: str
) -> None:
    """For an object with a pod template an API server only warns; a pod it refuses."""
    assert applied.returncode == 0
    made = cluster.apply([_bare(name)])
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout == f"pod/bare-{name} created\n"


def test_the_namespace_refuses_a_pod_that_may_do_more(
    cluster: Cluster, applied: subprocess.CompletedProcess[str]
) -> None:
    """So it is the standard that the others have passed."""
    assert applied.returncode == 0
    pod = _bare("tarry")
    pod["metadata"]["name"] = "bare-root"
    pod["spec"]["securityContext"]["runAsNonRoot"] = False
    made = cluster.apply([pod])
    assert made.returncode != 0
    assert 'violates PodSecurity "restricted' in made.stderr


def test_an_unknown_field_is_refused(cluster: Cluster, applied: subprocess.CompletedProcess[str]) -> None:
    """So it is a strict server that all of it has passed, what operators define included."""
    assert applied.returncode == 0
    topic = next(one for one in objects() if one["kind"] == "KafkaTopic")
    topic["spec"]["replication"] = 3
    made = cluster.apply([topic])
    assert made.returncode != 0
    assert 'unknown field "spec.replication"' in made.stderr


# -- helm on an API server --------------------------------------------------------------------------------------------


class Release:
    """A release of the chart with Strimzi's topics, in a namespace of its own."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self._cluster, self._values = cluster, directory / "values.yaml"
        self.namespace = f"{cluster.namespace}-{uuid.uuid4().hex[:4]}"

    def helm(self, verb: str, *options: str) -> str:
        """Run helm for this release; returns what it says."""
        run = subprocess.run(
            ["helm", verb, "tarry", *options, "--namespace", self.namespace],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    def become(self, *, delays: dict[str, str], strimzi: bool = True) -> None:
        """Install it, or upgrade it.

        Args:
            delays: the `max_delay` of each intake.
            strimzi: whether Strimzi makes the topics.
        """
        intakes = [
            {"topic": name, "partitions": 1, "replication": 1, "max_delay": delay, "targets": ["a"]}
            for name, delay in delays.items()
        ]
        values = {"config": {"intake": intakes}, "strimzi": {"enabled": strimzi}}
        self._values.write_text(yaml.safe_dump(values), encoding="utf-8")
        self.helm("upgrade", "--install", str(render.CHART), "--create-namespace", "--values", str(self._values))

    def begin_with_job(self) -> subprocess.Popen[str]:
        """Begin to install it with the Job of the topics; return helm, which waits for the Job."""
        intake = {"topic": "in", "partitions": 1, "replication": 1, "max_delay": "60s", "targets": ["a"]}
        secret = {"options": {"sasl.password": "password"}, "values": {"password": "secret"}}
        values = {"config": {"intake": [intake]}, "secret": secret, "topicsJob": {"enabled": True}}
        self._values.write_text(yaml.safe_dump(values), encoding="utf-8")
        command = ["helm", "install", "tarry", str(render.CHART), "--create-namespace", "--values", str(self._values)]
        return subprocess.Popen(
            [*command, "--namespace", self.namespace, "--timeout", f"{TIMEOUT_S}s"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_job(self) -> str:
        """Wait until the API server has the Job; return its name."""
        found: list[str] = []

        def is_there() -> bool:
            got = self._cluster.kubectl("get", "jobs", "--output=name", "--namespace", self.namespace)
            found[:] = got.stdout.split()
            return bool(found)

        wait_until(is_there, "helm makes the Job", 60)
        (job,) = found
        return job

    def succeed(self, job: str) -> None:
        """Say that a Job has succeeded."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        conditions = [{"type": one, "status": "True"} for one in ("SuccessCriteriaMet", "Complete")]
        status = {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": conditions}
        patch = json.dumps({"status": status})
        done = self._cluster.kubectl(
            "patch", job, "--subresource=status", "--type=merge", "--patch", patch, "--namespace", self.namespace
        )
        assert done.returncode == 0, done.stderr

    def topics(self) -> set[str]:
        """The topics of the KafkaTopics that the API server has."""
        got = self._cluster.kubectl("get", "kafkatopics", "--output=json", "--namespace", self.namespace)
        assert got.returncode == 0, got.stderr
        return {one["spec"]["topicName"] for one in json.loads(got.stdout)["items"]}

    def kinds(self) -> set[str]:
        """The kinds of some other objects of the chart that the API server has."""
        kinds = "deployments,kafkausers,services"
        got = self._cluster.kubectl("get", kinds, "--output=name", "--namespace", self.namespace)
        assert got.returncode == 0, got.stderr
        return {line.partition("/")[0].partition(".")[0] for line in got.stdout.split()}


@pytest.fixture
def release(cluster: Cluster, helm: None, tmp_path: Path) -> Iterator[Release]:
    release = Release(cluster, tmp_path)
    release.become(delays={"soon": "60s", "late": "30d"})
    yield release
    cluster.kubectl("delete", "namespace", release.namespace, "--wait=false")


def test_the_topics_stay_when_the_release_is_uninstalled_and_it_takes_them_up_again(release: Release) -> None:
    there = release.topics()
    assert {"soon", "late", "late.wheel-4", "soon.journal"} <= there
    said = release.helm("uninstall")
    assert "These resources were kept due to the resource policy" in said
    assert said.count("[KafkaTopic]") == len(there)
    assert release.topics() == there
    assert release.kinds() == set()
    release.become(delays={"soon": "60s", "late": "30d"})
    assert release.topics() == there
    assert "deployment" in release.kinds()


def test_the_topics_stay_when_strimzi_is_switched_off(release: Release) -> None:
    there = release.topics()
    release.become(delays={"soon": "60s", "late": "30d"}, strimzi=False)
    assert release.topics() == there
    assert "kafkauser" not in release.kinds()


def test_the_topics_of_an_intake_stay_when_it_is_taken_out(release: Release) -> None:
    there = release.topics()
    release.become(delays={"soon": "60s"})
    assert release.topics() == there


def test_the_levels_stay_when_the_delay_becomes_shorter(release: Release) -> None:
    there = release.topics()
    assert "late.wheel-4" in there
    release.become(delays={"soon": "60s", "late": "60s"})
    assert release.topics() == there


def test_nothing_else_is_made_before_the_job_of_the_topics_has_succeeded(
    cluster: Cluster, helm: None, tmp_path: Path
) -> None:
    """No pod runs here: the test says in the place of the kubelet that the Job has succeeded."""
    release = Release(cluster, tmp_path)
    helm_runs = release.begin_with_job()
    try:
        job = release.wait_for_job()
        assert release.kinds() == set(), "neither pods nor their configuration"
        there = cluster.kubectl("get", "configmap,secret,serviceaccount", "--output=name", "-n", release.namespace)
        own = ("configmap/tarry-topics", "secret/tarry-topics", "serviceaccount/tarry-topics")
        assert {one for one in there.stdout.split() if one.endswith("/tarry") or "tarry-" in one} == set(own)
        release.succeed(job)
        said, complaint = helm_runs.communicate(timeout=TIMEOUT_S)
        assert helm_runs.returncode == 0, complaint
        assert "deployed" in said
    finally:
        helm_runs.kill()
        helm_runs.communicate()
        cluster.kubectl("delete", "namespace", release.namespace, "--wait=false")
    assert "deployment" in release.kinds()
    left = cluster.kubectl("get", "configmap,secret,serviceaccount", "--output=name", "-n", release.namespace)
    assert not {*left.stdout.split()} & {*own}, "what the Job needed is gone"


def _bare(name: str) -> Object:
    template = dict(pod_templates())[name]
    metadata: dict[str, Any] = {**template["metadata"], "name": f"bare-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _the(made: list[Object], kind: str) -> Object:
    (one,) = (one for one in made if one["kind"] == kind)
    return one
