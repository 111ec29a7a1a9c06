"""A fake Kafka cluster. It is deterministic and runs in one thread."""

from tarry.testing.fake.broker import FakeBroker
from tarry.testing.fake.log import Record
from tarry.testing.fake.refusals import ProcessKilled
from tarry.testing.fake.steps import Fate, Hook, Step

__all__ = ["FakeBroker", "Fate", "Hook", "ProcessKilled", "Record", "Step"]
