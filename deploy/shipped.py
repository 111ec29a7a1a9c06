"""What we ship, part by part: the packages of an image by its lock, and jars by what they say of themselves.

- `service`: the packages of the service's image.
- `spark`: the packages of the image for the jobs on Spark, the jars that PySpark brings, and the connectors.
- `broker`: the jars that `tarry broker` downloads.

Not among them are Python itself and Debian's packages in the images: what is known of those, their distributor says.
"""

import hashlib
import re
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import pyspark
from packaging.markers import default_environment
from packaging.requirements import Requirement

from tarry.devbroker.broker import KAFKA
from tarry.jars import find_java
from tarry.pipelines.session import CONNECTORS
from tarry.progress_output import tell

ROOT: Final = Path(__file__).parents[1]
LOCKS: Final = {
    "service": ROOT / "service" / "requirements" / "service.lock",
    "spark": ROOT / "service" / "requirements" / "spark.lock",
}
PRODUCTS: Final = ("service", "spark", "broker")
_IMAGE: Final = {"sys_platform": "linux", "platform_system": "Linux", "python_version": "3.11"} | {
    "python_full_version": "3.11.0",
    "implementation_name": "cpython",
}
"""The machine that the images are for; where the lock distinguishes machines, its lines for others are left out."""
_POM: Final = re.compile(r"META-INF/maven/[^/]+/[^/]+/pom\.properties")
_FILE: Final = re.compile(r"(.+?)-(\d[^-]*)(-.+)?\.jar")
_GROUPS: Final[dict[str, list[str]]] = tomllib.loads((ROOT / "deploy" / "jar-groups.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A package of PyPI, or a jar.

    Attributes:
        ecosystem: `PyPI` or `Maven`, as in the OSV format.
        name: its name; of a jar `group:artifact`, or the artifact alone if the jar does not name its group.
        version: its version.
        sha256: the checksum of a jar; empty for a package, of which a lock has one for each file.
    """

    ecosystem: str
    name: str
    version: str
    sha256: str = ""


def parts_of(product: str) -> list[Part]:
    """Return the parts of a product, sorted. Jars that are not in the cache are downloaded.

    Raises:
        UsageError: jars cannot be downloaded.
    """
    packages = packages_of(LOCKS[product]) if product in LOCKS else ()
    return sorted({*packages, *(jar_at(path) for path in jars_of(product))})


def packages_of(lock: Path) -> Iterator[Part]:
    """Read the packages that a lock has for the image."""
    environment = {name: str(value) for name, value in default_environment().items()} | _IMAGE
    for line in re.findall(r"(?m)^(\S+==[^\\\n]+?) \\$", lock.read_text(encoding="utf-8")):
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            (pin,) = requirement.specifier
            yield Part("PyPI", requirement.name, pin.version)


def jars_of(product: str) -> Iterable[Path]:
    """Return the jars of a product."""
    if product == "broker":
        return KAFKA.get(find_java(), tell)
    if product == "spark":
        bundled = Path(pyspark.__file__).parent.joinpath("jars").glob("*.jar")
        return [*bundled, *CONNECTORS.get(find_java(), tell)]
    return ()


def jar_at(path: Path) -> Part:
    """Read what a jar says of itself: its name, or else the description in it, or else what we know of its group."""
    named = _FILE.fullmatch(path.name)
    artifact, version = named.group(1, 2) if named else (path.stem, "")
    group = _group_of(artifact)
    with zipfile.ZipFile(path) as jar:
        for description in filter(_POM.fullmatch, jar.namelist()):
            said = dict(re.findall(r"(?m)^(\w+)=(.*?)\s*$", jar.read(description).decode()))
            # A jar that contains others describes those, too. After the version, the name may have a classifier.
            if re.match(re.escape(f"{said.get('artifactId')}-{said.get('version')}") + r"[-.]", path.name):
                group, artifact, version = said["groupId"], said["artifactId"], said["version"]
    for known in (*KAFKA.artefacts, *CONNECTORS.artefacts):
        if path.name == f"{known.name}-{known.version}.jar":
            group, artifact, version = known.organisation, known.name, known.version
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    return Part("Maven", f"{group}:{artifact}" if group else artifact, version, checksum)


def _group_of(artifact: str) -> str:
    for group, patterns in _GROUPS.items():
        if any(fnmatchcase(artifact, pattern) for pattern in patterns):
            return group
    return ""
