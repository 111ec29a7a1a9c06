"""Shared by the commands that read the cluster: configuration, inspector, and a progress bar for long reads."""

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
from tarry.kafka.inspector import Inspector
from tarry.kafka.settings import Cluster
from tarry.service.app import cluster_of
from tarry.units import format_instant

SHOWN_FROM = 20_000
"""Number of unread records from which the progress bar is shown. Fewer records are read too fast for a bar."""


def configured(config: Path | None, bootstrap_servers: str | None) -> tuple[Config, Cluster]:
    """Load the configuration.

    Args:
        config: the configuration file; None: the default one.
        bootstrap_servers: replaces the address of the configuration, if given.

    Returns:
        The configuration, and the cluster to connect to.

    Raises:
        ConfigError: the configuration is wrong.
    """
    settings = load(config, os.environ)
    cluster = cluster_of(settings)
    if bootstrap_servers is not None:
        cluster = replace(cluster, bootstrap_servers=bootstrap_servers)
    # librdkafka would log each refused connection; the command reports the failure once, in its own error.
    logging.getLogger("librdkafka").addHandler(logging.NullHandler())
    return settings, cluster


@contextmanager
def open_inspector(settings: Config, cluster: Cluster) -> Iterator[Inspector]:
    """Open an inspector that shows a progress bar on a terminal, and close it after the block."""
    bar = Bar()
    inspector = Inspector(cluster, settings.service.group, SystemClock(), bar.advance)
    try:
        yield inspector
    finally:
        bar.close()
        inspector.close()


def instants(**moments: int | None) -> dict[str, Any]:
    """Return two JSON fields per instant: `NAME` as RFC 3339 text, and `NAME_ms` in milliseconds since the epoch."""
    fields: dict[str, Any] = {}
    for name, at_ms in moments.items():
        fields[name] = None if at_ms is None else format_instant(at_ms)
        fields[f"{name}_ms"] = at_ms
    return fields


class Bar:
    """A progress bar on stderr. It appears only on a terminal, and only for `SHOWN_FROM` unread records or more."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress: Progress | None = None
        self._read = self._total = 0

    def advance(self, read: int, more: int) -> None:
        """Report progress.

        Args:
            read: number of records read since the last call.
            more: number of records that were found since the last call and that must be read.
        """
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
        """Remove the bar from the terminal."""
        if self._progress is not None:
            self._progress.stop()
