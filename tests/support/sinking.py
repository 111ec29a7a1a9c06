"""Sinks as processes that may stop themselves at a step of a transaction, their messages, and the expected rows.

ids         the ids are stored, and the application has written nothing
rows        the application's rows are written, but not the offsets
offsets     everything is written, and nothing is committed
committed   the transaction is committed, but the process does not know it
"""

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from unittest.mock import patch

from confluent_kafka import Producer

from tarry.client.dedup import DeliveredMessage, PostgresSink
from tarry.client.dedup.store import Store
from tarry.client.dedup.tables import Tables
from tests.support.fate import Fate

if TYPE_CHECKING:
    from psycopg import Cursor

Step = Literal["ids", "rows", "offsets", "committed"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)
MAKE_ROWS: Final = "CREATE TABLE IF NOT EXISTS rows (sink text, source text, id text, value bytea)"


@dataclass(frozen=True, slots=True)
class SinkConfig:
    """The configuration of a sink, and the step at which it stops itself."""

    bootstrap: str
    topic: str
    group: str
    conninfo: str
    group_protocol: str = "classic"
    idle_limit_s: float = 20.0
    batch: int = 20
    step: str = ""
    signal: str = "KILL"


def write_rows(group: str, cursor: "Cursor[Any]", messages: Sequence[DeliveredMessage]) -> None:
    """The application's function: inserts a row for each message; no constraint prevents duplicates."""
    rows = [(group, f"{one.topic}/{one.partition}/{one.offset}", one.id, one.value) for one in messages]
    cursor.executemany("INSERT INTO rows VALUES (%s, %s, %s, %s)", rows)


def sink_of(config: SinkConfig, write: Any, **more: Any) -> PostgresSink:
    """A sink."""
    return PostgresSink(
        config.bootstrap,
        [config.topic],
        config.group,
        config.conninfo,
        write,
        batch=config.batch,
        idle_limit_s=config.idle_limit_s,
        group_protocol=config.group_protocol,  # type: ignore[arg-type]  # it is checked there
        **more,
    )


class Sinking:
    """A process with a sink."""

    def __init__(self, config: SinkConfig, log: Path) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.sinking", json.dumps(asdict(config))],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=Path(__file__).parents[2],
            )

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; return the exit code. SIGTERM lets the sink finish its batch."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def says(self, event: str) -> bool:
        """Whether its output contains a text."""
        return f'"event": "{event}"' in self.tail()

    def tail(self) -> str:
        """Its last output."""
        return self._log.read_text(encoding="utf-8")


@contextmanager
def sinking(config: SinkConfig, directory: Path) -> Iterator[Sinking]:
    """A process with a sink, which ends with the context."""
    one = Sinking(config, directory / f"sink-{uuid.uuid4().hex[:8]}.log")
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait(30)


def send(bootstrap: str, topic: str, count: int, again: int = 0) -> dict[str, bytes]:
    """Send messages, `again` of them a second time to a random partition; return the values by id."""
    messages = {str(uuid.uuid4()): b"%d" % number for number in range(count)}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for id_, value in [*messages.items(), *list(messages.items())[:again]]:
        producer.produce(topic, value, headers={"tarry-id": id_.encode()})
    if left := producer.flush(30):
        raise AssertionError(f"{left} messages were not sent")
    return messages


def main() -> None:
    """Run a sink until SIGTERM, or until the step."""
    config = SinkConfig(**json.loads(sys.argv[1]))

    def tell(event: str, **fields: object) -> None:
        sys.stderr.write(json.dumps({"event": event, **fields}) + "\n")
        sys.stderr.flush()

    fate = Fate(config.step, 2, signal.Signals[f"SIG{config.signal}"], tell)
    fate.arm()

    def at(step: Step) -> None:
        if fate.looms(step):
            fate.strike()

    def write(cursor: "Cursor[Any]", messages: Sequence[DeliveredMessage]) -> None:
        at("ids")
        write_rows(config.group, cursor, messages)
        at("rows")

    prune, store = Tables.prune, Store.write

    def pruning(*arguments: Any) -> None:
        prune(*arguments)
        at("offsets")

    def storing(*arguments: Any) -> int:
        written = store(*arguments)
        at("committed")
        return written

    with patch.object(Tables, "prune", pruning), patch.object(Store, "write", storing):
        sink = sink_of(config, write, on_event=tell)
        signal.signal(signal.SIGTERM, lambda *_: sink.stop())
        sink.run()


if __name__ == "__main__":
    main()
