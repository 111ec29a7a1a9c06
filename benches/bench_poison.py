"""Good messages beside bad ones: how fast they arrive where half of all is poison.

    python -m benches.bench_poison [--messages 10000] [--rounds 3]

N messages, held in memory, all due at one instant, through one process of the service; from the instant until the last
good one can be read by a read_committed reader. Four mixtures, in turn:

- none: all are good, and go to one target.
- decided alone: half is poison that needs no look at a target's settings: bad headers, unknown targets, bad partitions.
- by limits: half is poison that a look at the target's settings tells: too large for it, no key for a compacted one.
- every kind: half is poison of every kind in turn, and a part of the good ones goes to those targets too.

The ratio is of good messages a second, next to those of the first mixture: half of all is good, so 0.5 is what a dead
letter costing as much as a delivery would give.
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
from tests.support import poison
from tests.support.processes import Serve, ServeConfig
from tests.support.stage import Inbox, Stage

PARTITIONS: Final = 4
DEADLINE_S: Final = 300.0

Mixture = tuple[str, Callable[[str], list[poison.Kind]], bool]
"""A name, the kinds of the bad half, and whether good messages go to targets with limits as well."""

MIXTURES: Final[Sequence[Mixture]] = (
    ("none", lambda _target: [], False),
    ("decided alone", lambda target: [*poison.by_headers(target), *poison.by_target(target)], False),
    ("by limits", poison.by_limits, False),
    ("every kind", poison.every_kind, True),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="measure good messages beside bad ones")
    parser.add_argument("--messages", type=int, default=10_000, help="of each mixture, good and bad")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured; the median counts")
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name, _, _ in MIXTURES}
    with large_broker() as broker, tempfile.TemporaryDirectory() as directory:
        # The broker's JVM must have seen the work.
        measure(broker.bootstrap_servers, MIXTURES[0], arguments.messages, Path(directory))
        for _ in range(arguments.rounds):
            for mixture in MIXTURES:
                per_s, aborted = measure(broker.bootstrap_servers, mixture, arguments.messages, Path(directory))
                rates[mixture[0]].append(per_s)
                print(f"{mixture[0]}: {per_s:,.0f} good messages/s, {aborted} transactions aborted", flush=True)
    best = statistics.median(rates["none"])
    for name, found in rates.items():
        median = statistics.median(found)
        print(f"{name:>14}: {median:>8,.0f} good messages/s, ratio {median / best:.2f}")


def measure(bootstrap: str, mixture: Mixture, messages: int, directory: Path) -> tuple[float, int]:
    """Let one mixture through.

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
    """A service that refuses every kind."""
    return ServeConfig(
        bootstrap=stage.cluster.bootstrap_servers,
        intake=stage.intake,
        partitions=PARTITIONS,
        group=stage.group,
        intake_settings={"targets": poison.TARGETS, "max_delay": f"{poison.MAX_DELAY_MS // 1_000}s"},
        overflow={"from": f"{poison.HORIZON_MS // 1_000}s"},
    )


def load(stage: Stage, kinds: Sequence[poison.Kind], messages: int, due_ms: int, *, everywhere: bool) -> int:
    """Put messages into the intake, good and bad in turn; how many are good."""
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
    """Wait for the last good message; when it could be read, epoch milliseconds."""
    ends = time.monotonic() + DEADLINE_S
    while len(arrived.poll(0.002)) < many:
        if time.monotonic() > ends:
            raise SystemExit(f"{len(arrived.records)} of {many} good messages after {DEADLINE_S:g} s")
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main()
