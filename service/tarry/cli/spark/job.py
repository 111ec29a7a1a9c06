"""What the commands of Spark jobs share: options, and how a job begins and ends."""

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

    from tarry.pipelines.topics import Topics

EveryOption = Annotated[
    str | None,
    typer.Option(metavar="10s", help="Go on, with a batch so often; without it: up to what is there now, and end."),
]


class Session(NamedTuple):
    """What was asked for of the session; each field but the last is an option of every job."""

    master: Annotated[
        str | None, typer.Option(metavar="M", help="Spark's master; by default local[2]; under spark-submit its own.")
    ] = None
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="K=V", help="A setting of Spark's, as often as needed.")
    ] = None
    kafka_option: Annotated[
        list[str] | None,
        typer.Option("--kafka-option", metavar="K=V", help="A property of Java's Kafka client, as often as needed."),
    ] = None
    config: ConfigOption = None
    bootstrap_servers: ServersOption = None
    is_debug: bool = False
    """No option of the job's: `--debug` stands before the command."""


def with_session(command: Callable[..., None]) -> Callable[..., None]:
    """A command of a job, with the options of its session behind its own.

    Args:
        command: takes them as one value, `session`; its own parameters are its own options.
    """
    options = {name: each for name, each in inspect.signature(Session).parameters.items() if name != "is_debug"}
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    own = [each for name, each in inspect.signature(command).parameters.items() if name != "session"]
    behind = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options.values()]

    @functools.wraps(command)
    def run(context: typer.Context, **given: object) -> None:
        asked = [given.pop(name) for name in options]
        session = Session._make([*asked, context.obj is not None and context.obj.debug])
        command(session=session, **given)

    parameters = [*own, *behind, context]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


class Job(NamedTuple):
    """What a job works with."""

    spark: "SparkSession"
    topics: "Topics"
    config: Config


def with_results(intakes: Iterable[str]) -> list[str]:
    """Intakes, and the topics of their results."""
    return [name for intake in intakes for name in (intake, f"{intake}{RESULTS}")]


def named_or_all(config: Config, intakes: Sequence[str] | None) -> list[str]:
    """The intakes that were named, or all that are configured."""
    return list(intakes or [one.topic for one in config.intakes])


def of_intakes(intakes: Sequence[str] | None) -> Callable[[Config], list[str]]:
    """What a job needs that looks at some intakes, or at all that are configured."""
    return lambda config: with_results(named_or_all(config, intakes))


@contextmanager
def job(name: str, asked: Session, needed: Callable[[Config], Iterable[str]]) -> Iterator[Job]:
    """A session, and the cluster that is configured; SIGTERM ends it as Ctrl-C does.

    Args:
        name: the job's.
        asked: its options.
        needed: the topics without which it can't begin: looked for before Spark starts, which takes a while.

    Raises:
        UsageError: no PySpark, a topic is missing, or Spark failed.
        BrokerError: no answer.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise UsageError("the jobs of tarry spark need PySpark: pip install 'tarry[pipelines]'")
    from tarry.pipelines.session import session
    from tarry.pipelines.streaming import FAILURES, reason
    from tarry.pipelines.topics import Topics, refuse_missing

    settings, cluster = configured(asked.config, asked.bootstrap_servers)
    properties = pairs("--kafka-option", asked.kafka_option)
    conf = pairs("--conf", asked.conf)
    refuse_missing(cluster, needed(settings))
    ending = _Ending()
    ending.listen()
    try:
        with (
            session(name, asked.master, conf, tell, shows_log=asked.is_debug) as spark,
            Topics(spark, cluster, properties) as topics,
        ):
            ending.listen()  # again: what Spark does at Ctrl-C asks Java in the middle of a question
            yield Job(spark, topics, settings)
    except Exception as error:
        ending.end_if_asked()
        if isinstance(error, FAILURES):
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
