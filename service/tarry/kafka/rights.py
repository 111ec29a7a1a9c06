"""Rights (ACLs): those that the service's user needs, as docs/security.md lists them, and which of them are missing."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation

from tarry.errors import FatalError, RetriableError, UsageError
from tarry.kafka.errors import error_of, group_errors, translate_group
from tarry.kafka.topics import CONTROL, DEAD, JOURNAL, OPERATIONS, PARKED, RESULTS, STATUS, wheel_topic

DENIED: Final = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""The errors of a broker that denies access."""

REQUEST_TIMEOUT_S: Final = 10.0

READ, WRITE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE
_DESCRIBE, _DESCRIBE_CONFIGS = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS
_TOPIC_DENIED: Final = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED).name()
_GUIDE: Final = "docs/security.md lists all that is needed"


class Rights(NamedTuple):
    """The operations on a topic that the service needs.

    Args:
        must: operations that it cannot work without.
        should: operations without which only trimming fails, schedules are not accepted, clients cannot learn what
            the intake accepts, no target can be paused, or the topic for bulk acts cannot be checked. For a topic that
            the service can do without, all operations are here.
    """

    must: frozenset[AclOperation]
    should: frozenset[AclOperation] = frozenset()


def rights_on(intake: str, levels: int, *, schedules: bool) -> dict[str, Rights]:
    """Return the rights that the service needs on an intake and on the topics that belong to it.

    Args:
        intake: its name.
        levels: how many levels its overflow wheel has.
        schedules: whether it accepts schedules, so that the service writes their next records to it.
    """
    delete = frozenset({DELETE})
    return {
        intake: Rights(frozenset({READ, _DESCRIBE_CONFIGS}), delete | ({WRITE} if schedules else set())),
        intake + RESULTS: Rights(frozenset({WRITE, _DESCRIBE_CONFIGS})),
        intake + JOURNAL: Rights(frozenset({READ, WRITE, _DESCRIBE_CONFIGS}), delete),
        intake + DEAD: Rights(frozenset({WRITE, _DESCRIBE_CONFIGS})),
        intake + STATUS: Rights(frozenset(), frozenset({WRITE, _DESCRIBE_CONFIGS})),
        intake + CONTROL: Rights(frozenset(), frozenset({READ, _DESCRIBE_CONFIGS})),
        intake + OPERATIONS: Rights(frozenset(), frozenset({_DESCRIBE, _DESCRIBE_CONFIGS})),
        intake + PARKED: Rights(frozenset({READ, WRITE, _DESCRIBE_CONFIGS}), delete),
        **{
            wheel_topic(intake, level): Rights(frozenset({READ, WRITE, DELETE, _DESCRIBE_CONFIGS}))
            for level in range(1, levels + 1)
        },
    }


def granted(
    admin: AdminClient, topics: Collection[str], timeout_s: float
) -> dict[str, frozenset[AclOperation] | KafkaError]:
    """Return the operations that this user may do on topics, or the error of a topic; empty if brokers do not tell."""
    if not topics:
        return {}
    futures = admin.describe_topics(
        TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=timeout_s
    )
    answers: dict[str, frozenset[AclOperation] | KafkaError] = {}
    for topic in topics:
        try:
            answers[topic] = frozenset(futures[topic].result().authorized_operations or ())
        except KafkaException as exception:
            answers[topic] = error_of(exception)
    return answers


def granted_on_group(admin: AdminClient, group: str, timeout_s: float) -> frozenset[AclOperation] | KafkaError:
    """Return the operations that this user may do on a consumer group, or the error, such as that it does not exist."""
    futures = admin.describe_consumer_groups([group], include_authorized_operations=True, request_timeout=timeout_s)
    try:
        return frozenset(futures[group].result().authorized_operations or ())
    except KafkaException as exception:
        return error_of(exception)


def check_rights(admin: AdminClient, group: str, needed: Mapping[str, Rights], *, all_there: bool = False) -> None:
    """Check that the service's user has the rights on its topics and its group.

    Args:
        admin: an admin client of the service's user.
        group: its consumer group.
        needed: the rights, by topic.
        all_there: whether all topics exist; else topics that do not exist, or are hidden from this user, are skipped.

    Raises:
        RetriableError: the brokers do not answer, or do not know all topics yet.
        UsageError: rights are missing; one line names all of them.
    """
    with group_errors("ask for the cluster's topics"):
        known = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    if all_there and (hidden := [topic for topic, rights in needed.items() if rights.must and topic not in known]):
        raise RetriableError(f"topic {hidden[0]} exists, but this user has no right to see it ({_GUIDE})")
    missing = []
    for topic, answer in granted(admin, [name for name in needed if name in known], REQUEST_TIMEOUT_S).items():
        if isinstance(answer, KafkaError):
            raise translate_group(answer, f"ask for the rights on topic {topic}")
        if answer and (lacking := needed[topic].must - answer):
            missing.append(f"{names(lacking)} on topic {topic}")
    of_group = granted_on_group(admin, group, REQUEST_TIMEOUT_S)
    if not isinstance(of_group, KafkaError):
        if of_group and READ not in of_group:
            missing.append(f"READ on group {group}")
    elif of_group.code() in DENIED:
        missing.append(f"READ on group {group}")
    elif isinstance(passing := translate_group(of_group, f"ask for the rights on group {group}"), RetriableError):
        raise passing
    if missing:
        raise UsageError(lacking_rights(missing))


def lacking_rights(missing: Iterable[str]) -> str:
    """Return the error line for missing rights, each given as `READ on topic orders`."""
    return f"rights are missing: {'; '.join(missing)} ({_GUIDE})"


def denial(error: FatalError) -> UsageError | None:
    """Return the error that refuses partitions, if this one denies access to a topic; else None."""
    return UsageError(f"{error} ({_GUIDE})") if error.code == _TOPIC_DENIED else None


def names(operations: Iterable[AclOperation]) -> str:
    """Return the names of operations, for an error line."""
    return ", ".join(sorted(operation.name for operation in operations))
