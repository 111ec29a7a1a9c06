"""Whether this user may do what the service does, as the brokers themselves say it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation

from tarry.app import geometry_of
from tarry.cli.check.finding import ANSWER_WITHIN_S, DENIED, FAIL, NOTE, OK, Finding
from tarry.config import Config
from tarry.kafka.errors import error_of
from tarry.kafka.topics import DEAD, JOURNAL, RESULTS, wheel_topic

_READ, _WRITE, _DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE


class Rights(NamedTuple):
    """What the service needs to do with a topic.

    Args:
        must: operations that it cannot work without.
        should: those without which only tidying up suffers.
    """

    must: frozenset[AclOperation]
    should: frozenset[AclOperation] = frozenset()


def rights(admin: AdminClient, settings: Config, there: set[str]) -> Iterator[Finding]:
    """What this user may do, as the brokers themselves say it."""
    needed = needed_rights(settings)
    found = {topic: wanted for topic, wanted in needed.items() if topic in there}
    if found:
        yield from _topic_rights(admin, found)
    for topic in needed:
        if topic not in found:
            yield Finding(NOTE, f"ACLs of topic {topic}: not there, or hidden from this user; making it needs CREATE")
    yield _group_right(admin, settings.service.group)
    yield Finding(
        NOTE,
        "ACLs of transactions: cannot be asked for; the service needs WRITE and DESCRIBE on transactional ids that "
        f"begin with {settings.service.group}.",
    )


def needed_rights(settings: Config) -> dict[str, Rights]:
    """What the service needs, by topic; a target counts where it is named in full."""
    write, delete = frozenset({_WRITE}), frozenset({_DELETE})
    needed: dict[str, Rights] = {}
    for intake in settings.intakes:
        name = intake.topic
        needed[name] = Rights(frozenset({_READ}), delete)
        needed[name + RESULTS] = Rights(write)
        needed[name + JOURNAL] = Rights(frozenset({_READ, _WRITE}), delete)
        needed[name + DEAD] = Rights(write)
        for level in range(1, geometry_of(settings, intake).levels + 1):
            # A bucket that is not emptied keeps its entry in the checkpoint, which has room for so many.
            needed[wheel_topic(name, level)] = Rights(frozenset({_READ, _WRITE, _DELETE}))
    for intake in settings.intakes:
        for target in (intake.target,) if intake.target else intake.targets:
            if not set(target) & set("*?["):
                must, should = needed.get(target, Rights(frozenset()))
                needed[target] = Rights(must | write, should)
    return needed


def _topic_rights(admin: AdminClient, needed: Mapping[str, Rights]) -> Iterator[Finding]:
    futures = admin.describe_topics(
        TopicCollection(list(needed)), include_authorized_operations=True, request_timeout=ANSWER_WITHIN_S
    )
    for topic, (must, should) in needed.items():
        try:
            allowed = futures[topic].result().authorized_operations or []
        except KafkaException as exception:
            yield Finding(FAIL, f"ACLs of topic {topic}: {error_of(exception).str()}")
            continue
        lacking = (must | should).difference(allowed)
        if lacking & must:
            yield Finding(FAIL, f"ACLs of topic {topic}: {_names(lacking)} needed, and not granted")
        elif lacking:
            yield Finding(NOTE, f"ACLs of topic {topic}: without {_names(lacking)} what is done stays in it for ever")
        else:
            yield Finding(OK, f"ACLs of topic {topic}: {_names(must | should)}")


def _group_right(admin: AdminClient, group: str) -> Finding:
    futures = admin.describe_consumer_groups(
        [group], include_authorized_operations=True, request_timeout=ANSWER_WITHIN_S
    )
    try:
        allowed = futures[group].result().authorized_operations or []
    except KafkaException as exception:
        error = error_of(exception)
        if error.code() in DENIED:
            return Finding(FAIL, f"ACLs of group {group}: READ needed, and not granted")
        # Such as a cluster whose topic of offsets nobody has used yet.
        return Finding(NOTE, f"ACLs of group {group}: could not be asked for ({error.name()}); READ is needed")
    if _READ not in allowed:
        return Finding(FAIL, f"ACLs of group {group}: READ needed, and not granted")
    return Finding(OK, f"ACLs of group {group}: READ")


def _names(operations: Iterable[AclOperation]) -> str:
    return ", ".join(sorted(operation.name for operation in operations))
