"""tarry: messages that arrive later, on time, once and in order, with Kafka as the only store.

The public API is `__all__` of this package, of `tarry.client` and its packages, of `tarry.errors` and of
`tarry.testing`. Every other module is internal and may change with any version.

A name is imported when it is first used, so that `import tarry` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tarry.client.aio import AsyncDelayedProducer
    from tarry.client.dedup import Deduplicator, PostgresSink
    from tarry.client.exclusive import ExclusiveWriter
    from tarry.client.outcome import OutcomeReader
    from tarry.client.producer import DelayedProducer
    from tarry.client.retry import RetryingConsumer, RetryPolicy
    from tarry.client.transactional_delays import TransactionalDelays
    from tarry.errors import BrokerError, ConfigError, HeaderError, RetriableError, TarryError, UndecidedError
    from tarry.handle import Handle

__version__ = "0.1.0"

_MODULES: Final = {
    "tarry.client.aio": ("AsyncDelayedProducer",),
    "tarry.client.dedup": ("Deduplicator", "PostgresSink"),
    "tarry.client.exclusive": ("ExclusiveWriter",),
    "tarry.client.outcome": ("OutcomeReader",),
    "tarry.client.producer": ("DelayedProducer",),
    "tarry.client.retry": ("RetryPolicy", "RetryingConsumer"),
    "tarry.client.transactional_delays": ("TransactionalDelays",),
    "tarry.errors": ("BrokerError", "ConfigError", "HeaderError", "RetriableError", "TarryError", "UndecidedError"),
    "tarry.handle": ("Handle",),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AsyncDelayedProducer",
    "BrokerError",
    "ConfigError",
    "Deduplicator",
    "DelayedProducer",
    "ExclusiveWriter",
    "Handle",
    "HeaderError",
    "OutcomeReader",
    "PostgresSink",
    "RetriableError",
    "RetryPolicy",
    "RetryingConsumer",
    "TarryError",
    "TransactionalDelays",
    "UndecidedError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
