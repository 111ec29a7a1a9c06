"""The message, or the schedule, that the arguments and options of `tarry send` describe."""

import os
import sys
from dataclasses import dataclass
from datetime import datetime

import typer

from tarry.cli.options import value_of
from tarry.cli.send_file import delay_of, read_time, time_in
from tarry.client import DelayedMessage, RepeatedMessage
from tarry.client.receipt import OnlyIf
from tarry.clock import SystemClock
from tarry.units import shown


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments and options of the command line that describe one message."""

    target: str | None = None
    value: str | None = None
    delay: str | None = None
    at: str | None = None
    key: str | None = None
    id: str | None = None
    partition: int | None = None
    header: list[str] | None = None
    name: str | None = None
    only_if: OnlyIf | None = None
    expires_at: str | None = None
    expires_in: str | None = None
    window: str | None = None
    every: str | None = None
    cron: str | None = None
    zone: str | None = None

    def message(self) -> DelayedMessage | RepeatedMessage:
        """Return the message, or the schedule, that they describe.

        Raises:
            typer.BadParameter: they describe none.
        """
        if self.target is None:
            raise typer.BadParameter("give TARGET, or --file F")
        if self.expires_at is not None and self.expires_in is not None:
            raise typer.BadParameter("--expires-at excludes --expires-in")
        if self.only_if is not None and self.name is None:
            raise typer.BadParameter("--if needs --name")
        return self._single(self.target) if self.every is None and self.cron is None else self._repeated(self.target)

    def _single(self, target: str) -> DelayedMessage:
        if self.zone is not None:
            raise typer.BadParameter("--zone needs --cron")
        if (self.delay is None) == (self.at is None):
            raise typer.BadParameter("give either --delay or --at; or --every or --cron, to repeat the message")
        return DelayedMessage(
            target,
            self._value(),
            None if self.key is None else os.fsencode(self.key),
            None if self.delay is None else value_of("--delay", delay_of, self.delay),
            None if self.at is None else value_of("--at", read_time, self.at),
            self.id,
            self._headers(),
            self.partition,
            None if self.name is None else os.fsencode(self.name),
            self.only_if,
            self._expiry(),
            None if self.window is None else value_of("--window", delay_of, self.window),
        )

    def _repeated(self, target: str) -> RepeatedMessage:
        if self.every is not None and self.cron is not None:
            raise typer.BadParameter("--every excludes --cron")
        if self.delay is not None:
            raise typer.BadParameter("--delay excludes --every and --cron")
        if self.at is not None and self.cron is not None:
            raise typer.BadParameter("--at excludes --cron: the rule says when it begins")
        if self.zone is not None and self.cron is None:
            raise typer.BadParameter("--zone needs --cron")
        if self.key is None or self.name is None:
            raise typer.BadParameter("--every and --cron need --key and --name, by which the schedule can be cancelled")
        return RepeatedMessage(
            target,
            self._value(),
            os.fsencode(self.key),
            os.fsencode(self.name),
            None if self.every is None else value_of("--every", delay_of, self.every),
            self.cron,
            self.zone,
            None if self.at is None else value_of("--at", read_time, self.at),
            self.only_if,
            self.id,
            self._headers(),
            self.partition,
            self._expiry(),
            None if self.window is None else value_of("--window", delay_of, self.window),
        )

    def _value(self) -> bytes:
        return sys.stdin.buffer.read() if self.value == "-" else os.fsencode(self.value or "")

    def _headers(self) -> list[tuple[str, bytes]]:
        pairs: list[tuple[str, bytes]] = []
        for text in self.header or []:
            name, equals, content = text.partition("=")
            if not name or not equals:
                raise typer.BadParameter(f"--header must be NAME=VALUE: {shown(text)}")
            pairs.append((name, os.fsencode(content)))
        return pairs

    def _expiry(self) -> datetime | None:
        if self.expires_in is not None:
            return value_of("--expires-in", lambda text: time_in(text, SystemClock().now_ms()), self.expires_in)
        return None if self.expires_at is None else value_of("--expires-at", read_time, self.expires_at)
