"""`deploy/k8s`: current, right by the schemas of Kubernetes, and as locked up as a pod can be."""

import re

import pytest
import yaml

from deploy import render
from tarry import __version__
from tests.support.manifests import (
    MANIFESTS,
    VERSIONS,
    fault,
    is_hook,
    objects,
    of_kind,
    pod_templates,
    the,
    the_api_s,
)

OBJECTS = objects()
PODS = dict(pod_templates())
each_pod = pytest.mark.parametrize("name", PODS)


def test_deploy_k8s_was_rendered_from_the_present_chart() -> None:
    said = render.DIGEST.read_text(encoding="utf-8").strip()
    assert said == render.digest(), "the chart was changed: make manifests"


def test_the_rules_of_the_chart_are_those_that_are_tested() -> None:
    assert render.RULES_IN_CHART.read_bytes() == render.RULES.read_bytes(), "make manifests"
    tested = render.RULES.read_text(encoding="utf-8")
    of_this_release = 'absent(tarry_build_info{namespace="tarry", job="tarry"})'
    assert the("PrometheusRule")["spec"] == yaml.safe_load(tested.replace("absent(tarry_build_info)", of_this_release))


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((render.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == __version__


@pytest.mark.parametrize("version", VERSIONS)
def test_schemas_allow_all_of_it_and_know_every_field(version: str) -> None:
    assert [said for one in OBJECTS if (said := fault(one, version))] == []


def test_a_field_that_no_schema_knows_would_be_noticed() -> None:
    deployment, topic = the("Deployment"), of_kind("KafkaTopic")[0]
    deployment["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    topic["spec"]["replication"] = 3
    for one in (deployment, topic):
        assert "was unexpected" in fault(one, VERSIONS[-1])


def test_all_that_the_chart_is_asked_for_is_there() -> None:
    kinds = {one["kind"] for one in OBJECTS}
    assert kinds == {
        *("Namespace", "ServiceAccount", "ConfigMap", "Secret", "Service", "Deployment", "Job", "CronJob"),
        *("PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy", "Ingress"),
        *("ServiceMonitor", "PrometheusRule", "KafkaTopic", "KafkaUser"),
    }


def test_names_are_unique_and_all_of_it_is_in_one_namespace() -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in OBJECTS]
    assert len(names) == len(set(names))
    assert {one["metadata"].get("namespace", render.NAMESPACE) for one in OBJECTS} == {render.NAMESPACE}


def test_objects_that_need_an_operator_are_in_separate_folders() -> None:
    for path in MANIFESTS.glob("*.yaml"):
        for one in objects(path):
            assert not re.search(r"strimzi|coreos", one["apiVersion"]), path.name


def test_helm_keeps_what_holds_messages() -> None:
    kept = [*of_kind("KafkaTopic"), *of_kind("Namespace")]
    assert {one["metadata"]["annotations"]["helm.sh/resource-policy"] for one in kept} == {"keep"}


@each_pod
def test_a_pod_has_no_token_no_root_no_rights_and_nowhere_to_write(name: str) -> None:
    spec = PODS[name]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"]["memory"]


@each_pod
def test_a_pod_is_not_told_of_services(name: str) -> None:
    """A Service named tarry would make variables that the service refuses: see `test_manifests_fit`."""
    assert PODS[name]["spec"]["enableServiceLinks"] is False


@each_pod
def test_every_volume_of_a_pod_is_defined_and_mounted(name: str) -> None:
    spec = PODS[name]["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in spec["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    (config,) = (volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume)
    hooks = spec["serviceAccountName"] == "tarry-topics"
    for kind, wanted in (("ConfigMap", config), ("ServiceAccount", spec["serviceAccountName"])):
        (there,) = (one for one in of_kind(kind) if one["metadata"]["name"] == wanted)
        assert is_hook(there) == hooks


def test_the_job_of_the_topics_runs_first_and_needs_nothing_that_helm_makes_later() -> None:
    hooks = [one for one in OBJECTS if is_hook(one)]
    weights = {one["kind"]: int(one["metadata"]["annotations"]["helm.sh/hook-weight"]) for one in hooks}
    assert weights == {"Job": 0, "ServiceAccount": -1, "ConfigMap": -1, "Secret": -1, "NetworkPolicy": -1}
    assert {one["metadata"]["annotations"]["helm.sh/hook"] for one in hooks} == {"pre-install,pre-upgrade"}
    for one in hooks:
        does_go = "hook-succeeded" in one["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
        assert does_go == (one["kind"] != "Job"), "who wonders reads its log"
    (job,) = (one for one in hooks if one["kind"] == "Job")
    spec = job["spec"]["template"]["spec"]
    needed = {variable["valueFrom"]["secretKeyRef"]["name"] for variable in spec["containers"][0]["env"]}
    needed |= {volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume}
    later = {one["metadata"]["name"] for one in OBJECTS if not is_hook(one)}
    assert needed | {spec["serviceAccountName"]} == {"tarry-topics"}
    assert not needed & later
    (policy,) = (one["spec"] for one in hooks if one["kind"] == "NetworkPolicy")
    assert policy["egress"] == the("NetworkPolicy")["spec"]["egress"]
    labels = {name: template["metadata"]["labels"] for name, template in PODS.items()}
    selected = [name for name, own in labels.items() if policy["podSelector"]["matchLabels"].items() <= own.items()]
    assert selected == [job["metadata"]["name"]]


def test_what_the_job_of_the_topics_has_a_copy_of_is_the_same() -> None:
    for kind, field in (("ConfigMap", "data"), ("Secret", "stringData")):
        (copy,) = (one for one in of_kind(kind) if is_hook(one))
        assert copy[field] == the(kind)[field]


def test_selectors_of_the_api_find_its_pods_and_no_others() -> None:
    labels = {name: template["metadata"]["labels"] for name, template in PODS.items()}
    wanted = [the_api_s("Deployment")["spec"]["selector"]["matchLabels"], the_api_s("Service")["spec"]["selector"]]
    wanted.append(the_api_s("PodDisruptionBudget")["spec"]["selector"]["matchLabels"])
    wanted.append(the_api_s("NetworkPolicy")["spec"]["podSelector"]["matchLabels"])
    wanted += [one["labelSelector"]["matchLabels"] for one in PODS["tarry-api"]["spec"]["topologySpreadConstraints"]]
    for selector in wanted:
        assert [name for name, own in labels.items() if selector.items() <= own.items()] == ["tarry-api"]
    monitored = the_api_s("ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert monitored.items() <= the_api_s("Service")["metadata"]["labels"].items()


def test_the_api_is_reached_by_tls_only_and_its_own_user_writes_to_kafka() -> None:
    (rule,) = the_api_s("Ingress")["spec"]["rules"]
    (tls,) = the_api_s("Ingress")["spec"]["tls"]
    assert tls["hosts"] == [rule["host"]]
    (path,) = rule["http"]["paths"]
    assert path["backend"]["service"] == {"name": "tarry-api", "port": {"name": "api"}}
    (port,) = the_api_s("Service")["spec"]["ports"]
    (container,) = PODS["tarry-api"]["spec"]["containers"]
    assert port["port"] == container["ports"][0]["containerPort"]
    secrets = {one["valueFrom"]["secretKeyRef"]["name"] for one in container["env"] if "valueFrom" in one}
    assert secrets == {"tarry-api-sasl"}


def test_selectors_find_the_service_s_pods_and_no_others() -> None:
    labels = {name: template["metadata"]["labels"] for name, template in PODS.items()}
    wanted = [the("Deployment")["spec"]["selector"]["matchLabels"], the("Service")["spec"]["selector"]]
    wanted.append(the("PodDisruptionBudget")["spec"]["selector"]["matchLabels"])
    spread = PODS["tarry"]["spec"]["topologySpreadConstraints"]
    wanted += [one["labelSelector"]["matchLabels"] for one in spread]
    for selector in wanted:
        assert [name for name, own in labels.items() if selector.items() <= own.items()] == ["tarry"]
    policy = the("NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    assert all(policy.items() <= own.items() for own in labels.values())
    monitored = the("ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert monitored.items() <= the("Service")["metadata"]["labels"].items()
