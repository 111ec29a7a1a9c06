"""Reads the rights from the tables of docs/security.md, and grants exactly these on a broker."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

SERVICE: Final = "What the service may do"
MAKER: Final = "Rights to create the topics"
SUCCESSOR: Final = "Rights to change the group"
"""Sections of the guide."""

GUIDE: Final = Path(__file__).parents[2] / "docs" / "security.md"
_ROW: Final = re.compile(r"\| (topic|group|transactional id) `([^`]+)`(, as a prefix)? \| ([A-Z_, ]+) \|")
_KINDS: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional id": ResourceType.TRANSACTIONAL_ID,
}
_WITHIN_S: Final = 30


class Grant(NamedTuple):
    """One operation on one resource.

    Args:
        kind: the kind of the resource.
        name: its name, or a prefix of its name.
        is_prefix: whether `name` is a prefix.
        operation: the allowed operation.
    """

    kind: ResourceType
    name: str
    is_prefix: bool
    operation: AclOperation

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.kind.name.lower()} {self.name}{'*' * self.is_prefix}"


def documented(heading: str, names: Mapping[str, Sequence[str]]) -> list[Grant]:
    """Return the grants in the table under a heading of the guide.

    Args:
        heading: the heading of the section.
        names: the names for each placeholder, such as `<target>`; without a name, rows with it are left out.

    Raises:
        AssertionError: there is no such table, or it has a placeholder that `names` does not have.
    """
    section = GUIDE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = _ROW.findall(section)
    assert rows, f"{GUIDE.name} has no table of rights under {heading}"
    return [
        Grant(_KINDS[kind], name, bool(prefix), AclOperation[operation.strip()])
        for kind, template, prefix, operations in rows
        for name in _filled(template, names)
        for operation in operations.split(",")
    ]


def give(admin: AdminClient, user: str, grants: Iterable[Grant]) -> None:
    """Add a grant on the broker."""
    bindings = [
        AclBinding(
            grant.kind,
            grant.name,
            ResourcePatternType.PREFIXED if grant.is_prefix else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            grant.operation,
            AclPermissionType.ALLOW,
        )
        for grant in dict.fromkeys(grants)
    ]
    if bindings:
        for future in admin.create_acls(bindings).values():
            future.result(_WITHIN_S)


def _filled(template: str, names: Mapping[str, Sequence[str]]) -> Iterator[str]:
    placeholder = re.search(r"<[a-z ]+>", template)
    if placeholder is None:
        yield template
        return
    assert placeholder[0] in names, f"{GUIDE.name}: what is {placeholder[0]}?"
    for name in names[placeholder[0]]:
        yield from _filled(template.replace(placeholder[0], name, 1), names)
