"""Renders the chart to `deploy/k8s`, and tells whether that is current.

    python deploy/render.py                 # writes; needs helm
    python deploy/render.py --digest        # what the chart is now, without helm

`deploy/k8s` has a file for each template that makes something, with the values of `ci/everything-values.yaml`, and
`rendered-from.txt` with the digest of the chart that it was rendered from. So anybody can tell, without helm, that the
chart was changed and not rendered; that helm makes these very files is tried where it is there.
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
"""Of the cluster that is rendered for; the chart takes 1.29 and newer."""

_SOURCE = re.compile(r"^# Source: [^/]+/templates/(\S+)\n", re.MULTILINE)
_HEAD = "# Rendered from deploy/helm by `make manifests`: change the chart, not this file.\n"


def digest() -> str:
    """The chart as one number: its files, by name and content."""
    summed = hashlib.sha256()
    for path in sorted(path for path in CHART.rglob("*") if path.is_file()):
        content = path.read_bytes()
        summed.update(f"{path.relative_to(CHART).as_posix()} {len(content)}\n".encode())
        summed.update(content)
    return summed.hexdigest()


def template(values: Path = VALUES, *settings: str) -> str:
    """What helm makes of the chart.

    Args:
        values: a file of values.
        settings: `NAME=JSON`, over them.

    Raises:
        CalledProcessError: it refuses; its stderr says why.
    """
    sets = [word for setting in settings for word in ("--set-json", setting)]
    # The version that a helm takes for the cluster's is its build's: one from source takes a very old one.
    command = ["helm", "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", KUBERNETES]
    command += ["--values", str(values), *sets]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def files_of(rendered: str) -> dict[str, str]:
    """Helm's output as files: their names below `deploy/k8s`, and their text."""
    documents: dict[str, list[str]] = {}
    for part in re.split(r"^---\n", rendered, flags=re.MULTILINE):
        if found := _SOURCE.search(part):
            text = _SOURCE.sub("", part, count=1).strip("\n")
            documents.setdefault(found[1], []).append(re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE) + "\n")
    return {name: _HEAD + "---\n".join(["", *texts]) for name, texts in documents.items()}


def write(files: Mapping[str, str]) -> None:
    """Put the files in place of those that are there."""
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
