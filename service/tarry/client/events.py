"""The events of consumers and sinks, logged by default."""

import logging
from collections.abc import Callable, Collection

OnEvent = Callable[..., None]
"""Called with the name of an event and its fields."""


def logging_to(name: str, usual: Collection[str]) -> OnEvent:
    """Return a function that logs events.

    Args:
        name: the name of the logger.
        usual: the events that are logged at level INFO; all others are warnings.
    """
    log = logging.getLogger(name)

    def on_event(event: str, **fields: object) -> None:
        level = logging.INFO if event in usual else logging.WARNING
        log.log(level, "%s %s", event, " ".join(f"{name}={value}" for name, value in fields.items()))

    return on_event
