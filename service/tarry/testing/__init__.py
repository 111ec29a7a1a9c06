"""Test support for programs that use tarry, and for tarry's own tests.

Each name is imported when it is first used: pytest imports this package for its plugin in every run in an environment
that has tarry installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tarry.testing.fake import FakeBroker, Fate, Hook, ProcessKilled, Record, Step
    from tarry.testing.fake_service import FakeService
    from tarry.testing.live_service import LiveService
    from tarry.testing.manual_clock import ManualClock
    from tarry.testing.proxy import PRODUCE, Fault, KafkaProxy, Side
    from tarry.testing.serve import Serve, ServeConfig

_MODULES = {
    "tarry.testing.fake": ("FakeBroker", "Fate", "Hook", "ProcessKilled", "Record", "Step"),
    "tarry.testing.fake_service": ("FakeService",),
    "tarry.testing.live_service": ("LiveService",),
    "tarry.testing.manual_clock": ("ManualClock",),
    "tarry.testing.proxy": ("PRODUCE", "Fault", "KafkaProxy", "Side"),
    "tarry.testing.serve": ("Serve", "ServeConfig"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "PRODUCE",
    "FakeBroker",
    "FakeService",
    "Fate",
    "Fault",
    "Hook",
    "KafkaProxy",
    "LiveService",
    "ManualClock",
    "ProcessKilled",
    "Record",
    "Serve",
    "ServeConfig",
    "Side",
    "Step",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return found
