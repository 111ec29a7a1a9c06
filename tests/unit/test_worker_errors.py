"""Kafka's errors become ours in one order: fatal, then abort, then retry, and what is none of these is fatal."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from tarry.clock import SystemClock
from tarry.errors import AbortableError, BrokerError, FatalError, RetriableError
from tarry.kafka.errors import group_errors, producer_errors, translate, translate_group
from tarry.kafka.patience import patiently

PASSES = """
BROKER_NOT_AVAILABLE CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE
ELIGIBLE_LEADERS_NOT_AVAILABLE FENCED_LEADER_EPOCH FENCED_MEMBER_EPOCH FETCH_SESSION_ID_NOT_FOUND
GROUP_ID_NOT_FOUND ILLEGAL_GENERATION INCONSISTENT_TOPIC_ID INVALID_FETCH_SESSION_EPOCH INVALID_MSG
KAFKA_STORAGE_ERROR LEADER_NOT_AVAILABLE LISTENER_NOT_FOUND MEMBER_ID_REQUIRED NETWORK_EXCEPTION
NOT_CONTROLLER NOT_COORDINATOR NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_LEADER_FOR_PARTITION
OFFSET_NOT_AVAILABLE PREFERRED_LEADER_NOT_AVAILABLE REASSIGNMENT_IN_PROGRESS REBALANCE_IN_PROGRESS
REBOOTSTRAP_REQUIRED REPLICA_NOT_AVAILABLE REQUEST_TIMED_OUT STALE_BROKER_EPOCH STALE_CTRL_EPOCH
STALE_MEMBER_EPOCH THROTTLING_QUOTA_EXCEEDED UNKNOWN_LEADER_EPOCH UNKNOWN_MEMBER_ID UNKNOWN_TOPIC_ID
UNKNOWN_TOPIC_OR_PART UNRELEASED_INSTANCE_ID UNSTABLE_OFFSET_COMMIT _ALL_BROKERS_DOWN _ASSIGNMENT_LOST
_DESTROY_BROKER _FAIL _INTR _IN_PROGRESS _MAX_POLL_EXCEEDED _NODE_UPDATE _NOENT _OUTDATED _PARTIAL
_PREV_IN_PROGRESS _RESOLVE _RETRY _STATE _TIMED_OUT _TIMED_OUT_QUEUE _TRANSPORT _WAIT_CACHE _WAIT_COORD
""".split()  # noqa: SIM905 (a table of words)
FINAL = """
CLUSTER_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTH_DISABLED
DELEGATION_TOKEN_EXPIRED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DUPLICATE_RESOURCE DUPLICATE_SEQUENCE_NUMBER DUPLICATE_VOTER
ELECTION_NOT_NEEDED FEATURE_UPDATE_FAILED FENCED_INSTANCE_ID FENCED_STATE_EPOCH GROUP_AUTHORIZATION_FAILED
GROUP_MAX_SIZE_REACHED GROUP_SUBSCRIBED_TO_TOPIC ILLEGAL_SASL_STATE INCONSISTENT_GROUP_PROTOCOL
INCONSISTENT_VOTER_SET INVALID_COMMIT_OFFSET_SIZE INVALID_CONFIG INVALID_GROUP_ID INVALID_MSG_SIZE
INVALID_PARTITIONS INVALID_PRINCIPAL_TYPE INVALID_PRODUCER_EPOCH INVALID_PRODUCER_ID_MAPPING INVALID_RECORD
INVALID_RECORD_STATE INVALID_REGISTRATION INVALID_REGULAR_EXPRESSION INVALID_REPLICATION_FACTOR
INVALID_REPLICA_ASSIGNMENT INVALID_REQUEST INVALID_REQUIRED_ACKS INVALID_SESSION_TIMEOUT
INVALID_SHARE_SESSION_EPOCH INVALID_TIMESTAMP INVALID_TRANSACTION_TIMEOUT INVALID_TXN_STATE
INVALID_UPDATE_VERSION INVALID_VOTER_KEY LOG_DIR_NOT_FOUND MISMATCHED_ENDPOINT_TYPE MSG_SIZE_TOO_LARGE
NON_EMPTY_GROUP NO_REASSIGNMENT_IN_PROGRESS OFFSET_METADATA_TOO_LARGE OFFSET_OUT_OF_RANGE
OPERATION_NOT_ATTEMPTED OUT_OF_ORDER_SEQUENCE_NUMBER POLICY_VIOLATION PRINCIPAL_DESERIALIZATION_FAILURE
PRODUCER_FENCED RECORD_LIST_TOO_LARGE RESOURCE_NOT_FOUND SASL_AUTHENTICATION_FAILED SECURITY_DISABLED
SHARE_SESSION_LIMIT_REACHED SHARE_SESSION_NOT_FOUND STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH
STREAMS_TOPOLOGY_FENCED TELEMETRY_TOO_LARGE TOPIC_ALREADY_EXISTS TOPIC_AUTHORIZATION_FAILED
TOPIC_DELETION_DISABLED TOPIC_EXCEPTION TRANSACTIONAL_ID_AUTHORIZATION_FAILED TRANSACTION_ABORTABLE
TRANSACTION_COORDINATOR_FENCED UNACCEPTABLE_CREDENTIAL UNKNOWN UNKNOWN_CONTROLLER_ID UNKNOWN_PRODUCER_ID
UNKNOWN_SUBSCRIPTION_ID UNSUPPORTED_ASSIGNOR UNSUPPORTED_COMPRESSION_TYPE UNSUPPORTED_ENDPOINT_TYPE
UNSUPPORTED_FOR_MESSAGE_FORMAT UNSUPPORTED_SASL_MECHANISM UNSUPPORTED_VERSION VOTER_NOT_FOUND _APPLICATION
_ASSIGN_PARTITIONS _AUTHENTICATION _AUTO_OFFSET_RESET _BAD_COMPRESSION _BAD_MSG _CONFLICT _CRIT_SYS_RESOURCE
_DESTROY _EXISTING_SUBSCRIPTION _FATAL _FENCED _FS _GAPLESS_GUARANTEE _INCONSISTENT _INVALID_ARG
_INVALID_DIFFERENT_RECORD _INVALID_TYPE _ISR_INSUFF _KEY_DESERIALIZATION _KEY_SERIALIZATION _LOG_TRUNCATION
_MSG_TIMED_OUT _NOOP _NOT_CONFIGURED _NOT_IMPLEMENTED _NO_OFFSET _PARTITION_EOF _PURGE_INFLIGHT _PURGE_QUEUE
_QUEUE_FULL _READ_ONLY _REVOKE_PARTITIONS _SSL _UNDERFLOW _UNKNOWN_BROKER _UNKNOWN_GROUP _UNKNOWN_PARTITION
_UNKNOWN_PROTOCOL _UNKNOWN_TOPIC _UNSUPPORTED_FEATURE _VALUE_DESERIALIZATION _VALUE_SERIALIZATION
""".split()  # noqa: SIM905 (a table of words)

FENCED, STATE, TIMED_OUT = KafkaError._FENCED, KafkaError._STATE, KafkaError._TIMED_OUT


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError(FENCED, "x", True, True, True), FatalError),
        (KafkaError(KafkaError.ILLEGAL_GENERATION, "x", False, True, True), AbortableError),
        (KafkaError(TIMED_OUT, "x", False, True, False), RetriableError),
        (KafkaError(STATE, "x", False, False, False), FatalError),
    ],
)
def test_of_a_transactions_error_the_worst_that_it_says_counts(error: KafkaError, kind: type[BrokerError]) -> None:
    found = translate(error, "commit")
    assert type(found) is kind
    assert found.code == error.name()
    assert str(found) == "could not commit: x"


@pytest.mark.parametrize("name", PASSES)
def test_an_error_that_is_no_fault_of_the_request_is_retriable(name: str) -> None:
    assert isinstance(translate_group(KafkaError(getattr(KafkaError, name)), "commit"), RetriableError)


@pytest.mark.parametrize("name", FINAL)
def test_an_error_that_a_retry_does_not_change_is_fatal(name: str) -> None:
    assert isinstance(translate_group(KafkaError(getattr(KafkaError, name)), "commit"), FatalError)


def test_every_code_of_the_client_library_is_on_one_side() -> None:
    names = {name for name, code in vars(KafkaError).items() if isinstance(code, int) and not name.startswith("__")}
    assert not set(PASSES) & set(FINAL)
    assert names - {"NO_ERROR"} == {*PASSES, *FINAL}


def test_a_fatal_error_of_a_group_is_fatal_also_where_its_code_passes() -> None:
    assert isinstance(translate_group(KafkaError(KafkaError.UNKNOWN_MEMBER_ID, "x", True), "commit"), FatalError)


def test_a_client_library_error_is_raised_as_ours_with_its_cause() -> None:
    cause = KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))
    with pytest.raises(RetriableError, match="could not ask") as asked, group_errors("ask"):
        raise cause
    assert asked.value.__cause__ is cause
    with pytest.raises(FatalError, match="could not begin") as begun, producer_errors("begin"):
        raise cause
    assert begun.value.code == "NOT_COORDINATOR"


def test_patience_asks_again_until_there_is_an_answer() -> None:
    answers: list[int | BrokerError] = [RetriableError("not yet"), RetriableError("not yet"), 7]

    def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    assert patiently(ask, SystemClock(), 5) == 7


def test_patience_ends_with_the_error_and_has_none_with_what_does_not_pass() -> None:
    def passing() -> int:
        raise RetriableError("still not")

    def final() -> int:
        raise FatalError("no")

    with pytest.raises(RetriableError, match="still not"):
        patiently(passing, SystemClock(), 0)
    with pytest.raises(FatalError):
        patiently(final, SystemClock(), 60)
