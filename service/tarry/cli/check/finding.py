"""What `tarry check` says: one line for each thing that it looked at."""

from typing import Final, NamedTuple

from confluent_kafka import KafkaError

ANSWER_WITHIN_S: Final = 8.0
"""How long a broker may take to answer: people wait for this command."""

OK, FAIL, NOTE = "ok", "FAIL", "note"

DENIED: Final = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""What a broker says to whom it does not trust with a question."""


class Finding(NamedTuple):
    """One line of the report.

    Args:
        word: `OK`, `FAIL` or `NOTE`.
        text: what was looked at, a colon, and how it is.
    """

    word: str
    text: str
