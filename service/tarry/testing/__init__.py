"""What tests of programs that use tarry, and tarry's own, stand on."""

from tarry.testing.fake import FakeBroker, Fate, Hook, ProcessKilled, Record, Step
from tarry.testing.manual_clock import ManualClock
from tarry.testing.proxy import PRODUCE, Fault, KafkaProxy, Side

__all__ = [
    "PRODUCE",
    "FakeBroker",
    "Fate",
    "Fault",
    "Hook",
    "KafkaProxy",
    "ManualClock",
    "ProcessKilled",
    "Record",
    "Side",
    "Step",
]
