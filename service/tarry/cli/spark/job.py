"""Shared parts of the Spark commands: the options of the session, and start and end of a job."""

import functools
import importlib.util
import inspect
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tarry.cli.inspect import configured
from tarry.cli.options import ConfigOption, ServersOption
from tarry.config import Config
from tarry.errors import ConfigError, UsageError
from tarry.kafka.topics import RESULTS
from tarry.progress_output import tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tarry.pipelines.topics import TopicTables

EveryOption = Annotated[
    str | None,
    typer.Option(metavar="10s", help="Run a batch at this interval; without it, process the current records and end."),
]


class SparkOptions(NamedTuple):
    """The options of the Spark session. Every job has each field, except the last, as an option."""

    master: Annotated[
        str | None, typer.Option(metavar="M", help="Spark master; default: local[2]; under spark-submit: its own.")
    ] = None
    conf: Annotated[list[str] | None, typer.Option("--conf", metavar="K=V", help="A Spark setting; repeatable.")] = None
    kafka_option: Annotated[
        list[str] | None,
        typer.Option("--kafka-option", metavar="K=V", help="A property of the Java Kafka client; repeatable."),
    ] = None
    config: ConfigOption = None
    bootstrap_servers: ServersOption = None
    is_debug: bool = False
    """Not an option of the job: `--debug` precedes the command."""


def with_session(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the session to a job's command, after its own options.

    Args:
        command: the command. It takes the session's options as one value, `session`; its other parameters are its own
            options.
    """
    options = {name: each for name, each in inspect.signature(SparkOptions).parameters.items() if name != "is_debug"}
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    own = [each for name, each in inspect.signature(command).parameters.items() if name != "session"]
    behind = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options.values()]

    @functools.wraps(command)
    def run(context: typer.Context, **given: object) -> None:
        asked = [given.pop(name) for name in options]
        session = SparkOptions._make([*asked, context.obj is not None and context.obj.debug])
        command(session=session, **given)

    parameters = [*own, *behind, context]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


class Job(NamedTuple):
    """The resources of a running job."""

    spark: "SparkSession"
    topics: "TopicTables"
    config: Config


def with_results(intakes: Iterable[str]) -> list[str]:
    """The intakes and their results topics."""
    return [name for intake in intakes for name in (intake, f"{intake}{RESULTS}")]


def named_or_all(config: Config, intakes: Sequence[str] | None) -> list[str]:
    """The named intakes; all configured intakes if none is named."""
    return list(intakes or [one.topic for one in config.intakes])


def of_intakes(intakes: Sequence[str] | None) -> Callable[[Config], list[str]]:
    """The required topics of a job that reads the named intakes, or all configured intakes."""
    return lambda config: with_results(named_or_all(config, intakes))


@contextmanager
def job(name: str, asked: SparkOptions, needed: Callable[[Config], Iterable[str]]) -> Iterator[Job]:
    """Open a Spark session and the configured cluster. SIGTERM ends the job in the same way as Ctrl-C.

    Args:
        name: the job's name.
        asked: the options of the session.
        needed: returns the topics that the job needs. They are checked before Spark starts, because the start takes
            several seconds.

    Raises:
        UsageError: PySpark is not installed, a topic is missing, or Spark failed.
        BrokerError: the brokers do not answer.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise UsageError("the jobs of tarry spark need PySpark: pip install 'tarry[spark]'")
    from tarry.pipelines.session import session
    from tarry.pipelines.streaming import FAILURES, reason
    from tarry.pipelines.topics import TopicTables, refuse_missing

    settings, cluster = configured(asked.config, asked.bootstrap_servers)
    properties = pairs("--kafka-option", asked.kafka_option)
    conf = pairs("--conf", asked.conf)
    refuse_missing(cluster, needed(settings))
    ending = _Ending()
    ending.listen()
    try:
        with (
            session(name, asked.master, conf, tell, shows_log=asked.is_debug) as spark,
            TopicTables(spark, cluster, properties) as topics,
        ):
            ending.listen()  # again: Spark's own handler calls Java, possibly during another call to Java
            yield Job(spark, topics, settings)
    except Exception as error:
        ending.end_if_asked()
        if isinstance(error, FAILURES):
            raise UsageError(reason(error)) from error
        raise


def pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """Parse the `NAME=VALUE` values of a repeatable option.

    Raises:
        ConfigError: a value has another form.
    """
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConfigError(f"{option}: must be NAME=VALUE: {text}")
        found[name] = value
    return found


class _Ending:
    """Ends a job at SIGTERM or Ctrl-C, at any point.

    The signal may interrupt a call to Java. Java then answers no further call and ends with this process. Errors that
    follow from this are suppressed.
    """

    def __init__(self) -> None:
        self._asked: int | None = None

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)

    def end_if_asked(self) -> None:
        """Exit if a signal asked for it.

        Raises:
            SystemExit: a signal was received.
        """
        if self._asked is not None:
            raise SystemExit(128 + self._asked) from None

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self._asked = number
        self.end_if_asked()
