"""What the commands that look on share: the configuration, an inspector, and a bar for long reads."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from tarry.clock import SystemClock
from tarry.config import Config, load
from tarry.core.request.intake_policy import IntakePolicy
from tarry.kafka.inspector import Inspector
from tarry.kafka.settings import Cluster
from tarry.service.app import cluster_of, policy_of
from tarry.units import MAX_EPOCH_MS, format_instant

SHOWN_FROM = 20_000
"""Reading fewer records takes no time that anybody would watch."""


def configured(config: Path | None, bootstrap_servers: str | None) -> tuple[Config, Cluster]:
    """The configuration, and the cluster that is meant."""
    settings = load(config, os.environ)
    cluster = cluster_of(settings)
    if bootstrap_servers is not None:
        cluster = replace(cluster, bootstrap_servers=bootstrap_servers)
    # Each refused connection would be a line; the command's own error says it once.
    logging.getLogger("librdkafka").addHandler(logging.NullHandler())
    return settings, cluster


@contextmanager
def inspector(settings: Config, cluster: Cluster) -> Iterator[Inspector]:
    """An inspector that shows how far it is, where somebody looks."""
    bar = Bar()
    looking = Inspector(cluster, settings.service.group, SystemClock(), bar.advance)
    try:
        yield looking
    finally:
        bar.close()
        looking.close()


def policy(settings: Config, topic: str) -> IntakePolicy:
    """What an intake accepts; whatever reads well, where it is not configured here."""
    for intake in settings.intakes:
        if intake.topic == topic:
            return policy_of(settings, intake)
    return IntakePolicy(topic, max_delay_ms=MAX_EPOCH_MS, tick_ms=settings.wheel.tick_ms)


def instants(**moments: int | None) -> dict[str, Any]:
    """Moments as JSON has them: as text, and `NAME_ms` as a number."""
    fields: dict[str, Any] = {}
    for name, at_ms in moments.items():
        fields[name] = None if at_ms is None else format_instant(at_ms)
        fields[f"{name}_ms"] = at_ms
    return fields


class Bar:
    """A bar on stderr that comes when there is much to read."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress: Progress | None = None
        self._read = self._total = 0

    def advance(self, read: int, more: int) -> None:
        """So many were read, and so many more are to be read."""
        self._read += read
        self._total += more
        if self._progress is None:
            if not self._console.is_terminal or self._total - self._read < SHOWN_FROM:
                return
            self._progress = Progress(
                *Progress.get_default_columns(),
                console=self._console,
                transient=True,
                redirect_stdout=sys.stdout.isatty(),
            )
            self._progress.add_task("reading", total=self._total)
            self._progress.start()
        self._progress.update(self._progress.task_ids[0], completed=self._read, total=self._total)

    def close(self) -> None:
        """Take it away."""
        if self._progress is not None:
            self._progress.stop()
