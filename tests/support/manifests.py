"""The objects of `deploy/k8s`, and their faults by the schemas of Kubernetes."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import yaml

REPOSITORY: Final = Path(__file__).parents[2]
MANIFESTS: Final = REPOSITORY / "deploy" / "k8s"
CRDS: Final = REPOSITORY / "tests" / "deploy" / "crds.yaml"
VERSIONS: Final = ("1.29", "1.31", "1.34")
"""Versions of Kubernetes: the oldest that the chart allows, one between, and that of the API server in the tests."""

Object = dict[str, Any]

# Neither has types.
jsonschema: Any = import_module("jsonschema")
kubernetes_validate: Any = import_module("kubernetes_validate")


def objects(path: Path = MANIFESTS) -> list[Object]:
    """All objects of a file, or of a directory and those below."""
    files = sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
    return [one for file in files for one in yaml.load_all(file.read_text(encoding="utf-8"), yaml.CSafeLoader) if one]


def of_kind(kind: str) -> list[Object]:
    """Return the objects of one kind."""
    return [one for one in objects() if one["kind"] == kind]


def the(kind: str) -> Object:
    """Return the service's only object of a kind that is there to stay: no hook of Helm's, and none of `tarry api`."""
    (one,) = (one for one in of_kind(kind) if not is_hook(one) and not is_of_api(one))
    return one


def the_api_s(kind: str) -> Object:
    """Return the only object of its kind of `tarry api`."""
    (one,) = (one for one in of_kind(kind) if is_of_api(one))
    return one


def is_of_api(one: Object) -> bool:
    """Return whether an object is of `tarry api`."""
    return bool(one["metadata"]["name"] == "tarry-api")


def is_hook(one: Object) -> bool:
    """Return whether an object is a hook of Helm's."""
    return "helm.sh/hook" in one["metadata"].get("annotations", {})


def pod_templates() -> Iterator[tuple[str, Object]]:
    """Return the pod templates: the name of the object that contains one, its metadata and its spec."""
    for one in objects():
        spec = one.get("spec", {})
        if one["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec:
            yield one["metadata"]["name"], spec["template"]


def fault(one: Mapping[str, Any], version: str) -> str:
    """Return why an object does not match the schema of its kind; empty if it does. Unknown fields are faults.

    Args:
        one: the object.
        version: the version of Kubernetes.
    """
    own = _own_schemas()
    try:
        if schema := own.get((one["apiVersion"], one["kind"])):
            jsonschema.validate(one, schema)
        else:
            kubernetes_validate.validate(dict(one), version, strict=True)
    except jsonschema.ValidationError as error:
        return f"{one['kind']} {one['metadata']['name']}: {error.json_path}: {error.message}"
    return ""


def mib(size: str) -> int:
    """A quantity of memory, in MiB."""
    number, unit = int(size[:-2]), size[-2:]
    return number * {"Mi": 1, "Gi": 1024}[unit]


def _own_schemas() -> dict[tuple[str, str], Object]:
    """Return our schemas of custom resources, by version and kind."""
    found = {}
    for crd in objects(CRDS):
        spec = crd["spec"]
        for version in spec["versions"]:
            schema = deepcopy(version["schema"]["openAPIV3Schema"])
            schema["properties"] |= {name: {} for name in ("apiVersion", "kind", "metadata")}
            _close(schema)
            found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return found


def _close(schema: Any) -> None:
    """Refuse fields that a schema does not name, as an API server with strict validation does."""
    if isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for part in schema.values():
            _close(part)
    elif isinstance(schema, list):
        for part in schema:
            _close(part)
