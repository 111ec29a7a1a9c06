"""Renders the chart to `deploy/k8s`, and prints the chart's digest.

    python deploy/render.py                 # writes deploy/k8s; needs helm
    python deploy/render.py --digest        # prints the digest of the chart; does not need helm

`deploy/k8s` has one file for each template that renders to something with the values of `ci/everything-values.yaml`.
`rendered-from.txt` holds the digest of the chart at that time, so that a test can tell without helm whether the chart
has changed since. Where helm is installed, another test renders the chart again and compares the files.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

DEPLOY = Path(__file__).parent
CHART = DEPLOY / "helm"
MANIFESTS = DEPLOY / "k8s"
VALUES = CHART / "ci" / "everything-values.yaml"
RULES = DEPLOY / "monitoring" / "tarry.rules.yml"
RULES_IN_CHART = CHART / "files" / "tarry.rules.yml"
DIGEST = MANIFESTS / "rendered-from.txt"
RELEASE = NAMESPACE = "tarry"
KUBERNETES = "1.34.0"
"""The cluster version to render for; the chart supports 1.29 and newer."""

_SOURCE = re.compile(r"^# Source: [^/]+/templates/(\S+)\n", re.MULTILINE)
_HEAD = "# Rendered from deploy/helm by `make manifests`: change the chart, not this file.\n"


def digest() -> str:
    """SHA-256 over the names and contents of the chart's files, in hex."""
    summed = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        content = path.read_bytes()
        summed.update(f"{path.relative_to(CHART).as_posix()} {len(content)}\n".encode())
        summed.update(content)
    return summed.hexdigest()


def template(values: Path = VALUES, *settings: str) -> str:
    """Render the chart; return helm's output.

    Args:
        values: a file of values.
        settings: `NAME=JSON`; each overrides a value of the file.

    Raises:
        CalledProcessError: helm refused the values or the chart; its stderr says why.
    """
    sets = [word for setting in settings for word in ("--set-json", setting)]
    # By default helm assumes the cluster version that it was built with, and a helm built from source a very old one.
    command = ["helm", "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", KUBERNETES]
    command += ["--values", str(values), *sets]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def files_of(rendered: str) -> dict[str, str]:
    """Split helm's output into files: from the name below `deploy/k8s` to the text."""
    documents: dict[str, list[str]] = {}
    for part in re.split(r"^---\n", rendered, flags=re.MULTILINE):
        if found := _SOURCE.search(part):
            text = _SOURCE.sub("", part, count=1).strip("\n")
            documents.setdefault(found[1], []).append(re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE) + "\n")
    return {name: _HEAD + "---\n".join(["", *texts]) for name, texts in documents.items()}


def write(files: Mapping[str, str]) -> None:
    """Replace the files in `deploy/k8s`, and write the digest."""
    for path in [*MANIFESTS.rglob("*.yaml"), DIGEST]:
        path.unlink(missing_ok=True)
    for name, text in files.items():
        path = MANIFESTS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    DIGEST.write_text(f"{digest()}\n", encoding="utf-8")


def main() -> None:
    """Render, or print the digest."""
    if sys.argv[1:] == ["--digest"]:
        print(digest())
        return
    shutil.copyfile(RULES, RULES_IN_CHART)
    write(files_of(template()))


if __name__ == "__main__":
    main()
