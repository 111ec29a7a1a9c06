"""What a reader of an application says of itself, where the application does not ask for it."""

import logging
from collections.abc import Callable, Collection

OnEvent = Callable[..., None]
"""Takes an event's name and fields."""


def logging_to(name: str, usual: Collection[str]) -> OnEvent:
    """Log events.

    Args:
        name: of the logger.
        usual: events that are told as information; any other is a warning.
    """
    log = logging.getLogger(name)

    def on_event(event: str, **fields: object) -> None:
        level = logging.INFO if event in usual else logging.WARNING
        log.log(level, "%s %s", event, " ".join(f"{name}={value}" for name, value in fields.items()))

    return on_event
