"""The errors of tarry, in one tree.

TarryError
├── ConfigError        a setting is wrong: one line that names it; exit code 2
├── HeaderError        a value given to the client library cannot be sent (a bad *record* is data, not an error)
├── UsageError         a command or a call cannot do what it was asked: one line; exit code 1
│   └── LogError           a partition of an intake's topics is in a state that only an operator can repair
└── BrokerError        Kafka or librdkafka refused; `code` is librdkafka's name of the error
    ├── RetriableError    the same call may succeed later
    │   ├── RejoinError           this process is not a member of the group: join again
    │   │   └── InstanceInUseError    a process with the same `service.instance` is still a member: join again later
    │   └── UndecidedError        it is not known yet whether a write succeeded: ask again
    ├── AbortableError    the open transaction must be aborted; the producer remains usable
    └── FatalError        the client is unusable: create a new one
        ├── MembershipLostError    another process has taken this one's place in the group: end
        └── FencedError            another writer has fenced this one: end

Kafka's own errors are translated in one place, `tarry.kafka.errors`.
"""

from collections.abc import Sequence


class TarryError(Exception):
    """The base class of all errors that tarry raises on purpose.

    The text is one line (only that of `tarry.testing.ServeError` ends with lines of the log). Where the caller can do
    something about the error, most texts say what.
    """


class ConfigError(TarryError):
    """A setting, an argument or an option is invalid, or a package that it needs is not installed."""


class HeaderError(TarryError):
    """A value cannot be sent: for example a bad delay, time, id or handle."""


class UsageError(TarryError):
    """A command or a call cannot do what it was asked."""


class LogError(UsageError):
    """A partition of an intake or of one of its other topics is in a wrong state: its intake partition can't be served.

    Args:
        text: one line for the operator.
        log: topic and partition.
        further: the same of other partitions.
    """

    def __init__(self, text: str, log: tuple[str, int], further: Sequence["LogError"] = ()) -> None:
        super().__init__(text)
        self.log = log
        self.further = further


class BrokerError(TarryError):
    """Kafka or the client library refused.

    Args:
        text: one line for the operator or the developer.
        code: librdkafka's name of the error, such as `_FENCED`; empty if there is none.
        may_be_done: whether what was asked for may be done nevertheless: nobody knows yet.
    """

    def __init__(self, text: str, code: str = "", *, may_be_done: bool = False) -> None:
        super().__init__(text)
        self.code = code
        self.may_be_done = may_be_done


class RetriableError(BrokerError):
    """The same call may succeed later."""


class RejoinError(RetriableError):
    """The group coordinator does not know this process as a member: join again."""


class InstanceInUseError(RejoinError):
    """A process with the same `service.instance` has not left the group, and its session has not expired yet."""


class UndecidedError(RetriableError):
    """It is not known yet whether a write succeeded; call `ExclusiveWriter.resume` to find out."""


class AbortableError(BrokerError):
    """The open transaction must be aborted; the producer remains usable."""


class FatalError(BrokerError):
    """The client is unusable: create a new one."""


class MembershipLostError(FatalError):
    """Another process has taken this one's place in the group, for example one with the same `service.instance`."""


class FencedError(FatalError):
    """Another writer with the same transactional id has fenced this one."""
