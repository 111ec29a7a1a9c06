"""What the commands of Spark jobs share: options, and how a job begins and ends."""

import importlib.util
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tarry.cli.looking import configured
from tarry.config import Config
from tarry.errors import ConfigError, UsageError
from tarry.units import parse_duration_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tarry.pipelines.topics import Topics

MasterOption = Annotated[
    str | None, typer.Option(metavar="M", help="Spark's master; by default local[2]; under spark-submit its own.")
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", metavar="K=V", help="A setting of Spark's, as often as needed.")
]
KafkaOption = Annotated[
    list[str] | None,
    typer.Option("--kafka-option", metavar="K=V", help="A property of Java's Kafka client, as often as needed."),
]


def _duration_ms(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


EveryOption = Annotated[
    int | None,
    typer.Option(
        parser=_duration_ms,
        metavar="10s",
        help="Go on, with a batch so often; without it: up to what is there now, and end.",
    ),
]


class Job(NamedTuple):
    """What a job works with."""

    spark: "SparkSession"
    topics: "Topics"
    config: Config


def tell(line: str) -> None:
    """Write one line of progress for people."""
    sys.stderr.write(f"tarry: {line}\n")
    sys.stderr.flush()


@contextmanager
def job(
    name: str,
    *,
    master: str | None,
    conf: Sequence[str] | None,
    kafka_option: Sequence[str] | None,
    config: Path | None,
    bootstrap_servers: str | None,
) -> Iterator[Job]:
    """A session, and the cluster that is configured; SIGTERM ends it as Ctrl-C does.

    Args:
        name: the job's.
        master: Spark's; None: local.
        conf: settings of Spark's, `NAME=VALUE`.
        kafka_option: properties of Java's client, `NAME=VALUE`.
        config: the configuration; None: the default one.
        bootstrap_servers: other servers than the configured ones.

    Raises:
        UsageError: no PySpark, or Spark failed.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise UsageError("the jobs of tarry spark need PySpark: pip install 'tarry[pipelines]'")
    from pyspark.errors import PySparkException

    from tarry.pipelines.session import session
    from tarry.pipelines.streaming import reason
    from tarry.pipelines.topics import Topics

    settings, cluster = configured(config, bootstrap_servers)
    properties = pairs("--kafka-option", kafka_option)
    ending = _Ending()
    ending.listen()
    try:
        with session(name, master, pairs("--conf", conf), tell) as spark, Topics(spark, cluster, properties) as topics:
            ending.listen()  # again: what Spark does at Ctrl-C asks Java in the middle of a question
            yield Job(spark, topics, settings)
    except Exception as error:
        ending.end_if_asked()
        if isinstance(error, PySparkException):
            raise UsageError(reason(error)) from error
        raise


def pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """`NAME=VALUE` texts of an option that may stand several times.

    Raises:
        ConfigError: one is not of that form.
    """
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConfigError(f"{option}: NAME=VALUE is wanted: {text}")
        found[name] = value
    return found


class _Ending:
    """Ends a job that is told to by SIGTERM or Ctrl-C, wherever it is.

    That may cut off a question to Java, after which it answers none; it ends with this process. Whatever fails because
    of that is of no interest.
    """

    def __init__(self) -> None:
        self._asked: int | None = None

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)

    def end_if_asked(self) -> None:
        """End, if that was asked for.

        Raises:
            SystemExit: it was.
        """
        if self._asked is not None:
            raise SystemExit(128 + self._asked) from None

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self._asked = number
        self.end_if_asked()
