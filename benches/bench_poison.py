"""How fast good messages arrive if half of all messages can never be delivered.

    python -m benches.bench_poison [--messages 10000] [--rounds 3]

One process of the service holds N messages in memory, all due at the same instant. The time counts from that instant
until a read_committed reader can read the last good message. There are four mixtures, one after the other:

- none: all messages are good, and go to one target.
- decided alone: half of them are bad in a way that shows without the target's settings: bad headers, unknown targets,
  bad partitions.
- by limits: half of them are bad because of the target's settings: too large, or without a key for a compacted target.
- every kind: half of them are bad, of every kind in turn, and some of the good ones go to the same targets.

The ratio compares the good messages per second with those of the first mixture. Only half of the messages are good, so
the ratio is 0.5 if a dead letter costs as much as a delivery.
"""

import argparse
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Final

from benches.support_kafka import large_broker
from tarry.native import core
from tests.support import poison
from tests.support.processes import Serve, ServeConfig
from tests.support.stage import Inbox, Stage

PARTITIONS: Final = 4
DEADLINE_S: Final = 300.0

Mixture = tuple[str, Callable[[str], list[poison.Kind]], bool]
"""For each mixture: its name, the kinds of its bad half, and whether good messages also go to targets with limits."""

MIXTURES: Final[Sequence[Mixture]] = (
    ("none", lambda _target: [], False),
    ("decided alone", lambda target: [*poison.by_headers(target), *poison.by_target(target)], False),
    ("by limits", poison.by_limits, False),
    ("every kind", poison.every_kind, True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="measure how fast good messages arrive among bad ones")
    parser.add_argument("--messages", type=int, default=10_000, help="of each mixture, good and bad")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured; the median counts")
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name, _, _ in MIXTURES}
    with large_broker() as broker, tempfile.TemporaryDirectory() as directory:
        # Warm up the broker's JVM.
        measure(broker.bootstrap_servers, MIXTURES[0], arguments.messages, Path(directory))
        for _ in range(arguments.rounds):
            for mixture in MIXTURES:
                per_s, aborted = measure(broker.bootstrap_servers, mixture, arguments.messages, Path(directory))
                rates[mixture[0]].append(per_s)
                print(f"{mixture[0]}: {per_s:,.0f} good messages/s, {aborted} transactions aborted", flush=True)
    best = statistics.median(rates["none"])
    print(core())
    for name, found in rates.items():
        median = statistics.median(found)
        print(f"{name:>14}: {median:>8,.0f} good messages/s, ratio {median / best:.2f}")


def measure(bootstrap: str, mixture: Mixture, messages: int, directory: Path) -> tuple[float, int]:
    """Measure one mixture.

    Returns:
        Good messages a second, and how many transactions were aborted.
    """
    name, kinds, everywhere = mixture
    with ExitStack() as until_the_end:
        stage = Stage(bootstrap, f"poison-{uuid.uuid4().hex[:8]}", PARTITIONS, until_the_end)
        stage.make_topic(stage.target, PARTITIONS)
        poison.make_targets(stage)
        serve = Serve(config(stage), directory, f"{name.replace(' ', '-')}-{stage.group}")
        until_the_end.callback(serve.close)
        serve.start().wait_serving()
        due_ms = time.time_ns() // 1_000_000 + 4_000 + messages // 4
        good = load(stage, kinds(stage.target), messages, due_ms, everywhere=everywhere)
        arrived = stage.committed(*poison.good_targets(stage))
        if time.time_ns() // 1_000_000 > due_ms - 500:
            raise SystemExit("the messages were not in the intake in time")
        done_ms = wait_for(arrived, good)
        aborted = len(serve.events("transaction_aborted"))
        if code := serve.stop(within_s=60):
            raise SystemExit(f"the service ended with {code}\n{serve.tail()}")
        return good / max(1, done_ms - due_ms) * 1_000, aborted


def config(stage: Stage) -> ServeConfig:
    """Write the configuration of a service that finds every kind of bad message."""
    return ServeConfig(
        bootstrap=stage.cluster.bootstrap_servers,
        intake=stage.intake,
        partitions=PARTITIONS,
        group=stage.group,
        intake_settings={"targets": poison.TARGETS, "max_delay": f"{poison.MAX_DELAY_MS // 1_000}s"},
        overflow={"from": f"{poison.HORIZON_MS // 1_000}s"},
    )


def load(stage: Stage, kinds: Sequence[poison.Kind], messages: int, due_ms: int, *, everywhere: bool) -> int:
    """Write messages to the intake, good and bad in turn; return how many are good."""
    targets = cycle(poison.good_targets(stage) if everywhere else [stage.target])
    bad = cycle(kinds) if kinds else None
    wanted: list[poison.Message] = []
    good = 0
    for number in range(messages):
        if bad is not None and number % 2:
            wanted.append(next(bad).make(number, due_ms))
        else:
            wanted.append(poison.good(next(targets), number, due_ms))
            good += 1
    stage.put(stage.intake, *[(number // 2 % PARTITIONS, *message) for number, message in enumerate(wanted)])
    return good


def wait_for(arrived: Inbox, many: int) -> int:
    """Wait for the last good message; return when it could be read, in epoch milliseconds."""
    ends = time.monotonic() + DEADLINE_S
    while len(arrived.poll(0.002)) < many:
        if time.monotonic() > ends:
            raise SystemExit(f"{len(arrived.records)} of {many} good messages after {DEADLINE_S:g} s")
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main()
