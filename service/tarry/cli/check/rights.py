"""The check of `tarry check` for the rights of this user, as the brokers report them."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation

from tarry.cli.check.finding import ANSWER_WITHIN_S, FAIL, NOTE, OK, Finding
from tarry.config import Config
from tarry.kafka.rights import DELETE, DENIED, READ, WRITE, Rights, granted, granted_on_group, names, rights_on
from tarry.kafka.topics import CONTROL, OPERATIONS
from tarry.service.app import geometry_of


def rights(admin: AdminClient, settings: Config, there: set[str]) -> Iterator[Finding]:
    """Compare the rights that this user has with those that the service needs.

    Args:
        admin: an admin client.
        settings: the configuration.
        there: the topics that exist and that this user can see.
    """
    needed = needed_rights(settings)
    yield from _topic_rights(admin, {topic: wanted for topic, wanted in needed.items() if topic in there})
    for topic in needed:
        if topic not in there:
            yield Finding(
                NOTE,
                f"ACLs of topic {topic}: it does not exist, or is hidden from this user; creating it needs CREATE",
            )
    yield _group_right(admin, settings.service.group)
    yield Finding(
        NOTE,
        "ACLs of transactional ids: not checked (Kafka has no request for it); the service needs WRITE on "
        f"transactional ids that begin with {settings.service.group}.",
    )


def needed_rights(settings: Config) -> dict[str, Rights]:
    """Return the rights that the service needs, by topic. Target globs are left out: they name no single topic."""
    needed: dict[str, Rights] = {}
    for intake in settings.intakes:
        needed |= rights_on(intake.topic, geometry_of(settings, intake).levels, schedules=intake.may_repeat)
    for intake in settings.intakes:
        for target in (intake.target,) if intake.target else intake.targets:
            if not set(target) & set("*?["):
                must, should = needed.get(target, Rights(frozenset()))
                needed[target] = Rights(must | {WRITE}, should)
    return needed


def _topic_rights(admin: AdminClient, needed: Mapping[str, Rights]) -> Iterator[Finding]:
    for topic, answer in granted(admin, needed, ANSWER_WITHIN_S).items():
        if isinstance(answer, KafkaError):
            yield Finding(FAIL, f"ACLs of topic {topic}: {answer.str()}")
            continue
        if not answer:
            yield Finding(NOTE, f"ACLs of topic {topic}: the brokers do not report this user's rights")
            continue
        must, should = needed[topic]
        lacking = (must | should) - answer
        if lacking & must:
            yield Finding(FAIL, f"ACLs of topic {topic}: {names(lacking)} needed, but not granted")
        elif lacking:
            yield Finding(NOTE, f"ACLs of topic {topic}: without {names(lacking)} {_lost(topic, must, lacking)}")
        else:
            yield Finding(OK, f"ACLs of topic {topic}: {names(must | should)}")


def _lost(topic: str, must: AbstractSet[AclOperation], lacking: AbstractSet[AclOperation]) -> str:
    """Return what the service cannot do without operations that it need not have."""
    if topic.endswith(CONTROL):
        return "no target can be paused"
    if topic.endswith(OPERATIONS):
        return "the service cannot check the topic that `tarry api` needs for bulk acts"
    if not must:
        return "clients cannot ask what the intake accepts"
    lost = {
        DELETE: "the service cannot delete done records",
        WRITE: "it accepts no schedules (tarry-every, tarry-cron)",
    }
    return " and ".join(text for operation, text in lost.items() if operation in lacking)


def _group_right(admin: AdminClient, group: str) -> Finding:
    allowed = granted_on_group(admin, group, ANSWER_WITHIN_S)
    if isinstance(allowed, KafkaError):
        if allowed.code() in DENIED:
            return Finding(FAIL, f"ACLs of group {group}: READ needed, but not granted")
        # For example, a new cluster has no __consumer_offsets topic yet, and so no group coordinator.
        return Finding(NOTE, f"ACLs of group {group}: could not be checked ({allowed.name()}); READ is needed")
    if not allowed:
        return Finding(NOTE, f"ACLs of group {group}: the brokers do not report this user's rights; READ is needed")
    if READ not in allowed:
        return Finding(FAIL, f"ACLs of group {group}: READ needed, but not granted")
    return Finding(OK, f"ACLs of group {group}: READ")
