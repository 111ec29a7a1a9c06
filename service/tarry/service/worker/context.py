"""The context that every part of the loop works in."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tarry.clock import Clock
from tarry.service.metrics.tally import Tally
from tarry.service.worker.deliveries import Deliveries


@dataclass(frozen=True, slots=True)
class Context:
    """The time, the log and the metrics.

    Attributes:
        clock: wall and monotonic time.
        on_event: takes an event's name and fields, for the log.
        tally: counts metrics.
        deliveries: counts deliveries by target.
    """

    clock: Clock
    on_event: Callable[..., None]
    tally: Tally = field(default_factory=Tally)
    deliveries: Deliveries = field(default_factory=Deliveries)

    def warn(self, reason: str) -> None:
        """Log an error from which a client recovers by itself."""
        self.on_event("kafka_warning", reason=reason)
