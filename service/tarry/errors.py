"""The errors of tarry, in one tree.

TarryError
├── ConfigError        a setting is wrong: one line that names it, exit 2
├── HeaderError        a value given to the client library cannot be sent (a bad *record* is data, not an error)
├── UsageError         a command cannot do what it was asked: one line, exit 1
│   └── LogError           one partition of a topic of ours is not as it must be, and only somebody can mend it
└── BrokerError        Kafka said no; `code` keeps librdkafka's name of the error
    ├── RetriableError    the same call may go through later
    │   ├── RejoinError           this process is no member: join anew
    │   │   └── InstanceInUseError    a process with the same `service.instance` is still one: join again later
    │   └── UndecidedError        whether a write succeeded is not known yet: ask again
    ├── AbortableError    the open transaction is lost, the producer is not
    └── FatalError        the client is lost: build a new one
        ├── MembershipLostError    another process took this one's place in the group: end
        └── FencedError            another writer took this one's place: end

Kafka's own errors are translated in one place, `tarry.kafka.errors`.
"""


class TarryError(Exception):
    """What tarry raises on purpose; its text is one line that says what to do."""


class ConfigError(TarryError):
    """The configuration names a field that does not exist, or gives one a bad value."""


class HeaderError(TarryError):
    """A delay, time, id or handle that cannot be sent."""


class UsageError(TarryError):
    """A command cannot do what it was asked."""


class LogError(UsageError):
    """A partition of an intake, or of a topic beside it, is not as it must be: its intake partition can't be served.

    Args:
        text: one line for people.
        log: topic and partition.
    """

    def __init__(self, text: str, log: tuple[str, int]) -> None:
        super().__init__(text)
        self.log = log


class BrokerError(TarryError):
    """Kafka, or the client library, refused.

    Args:
        text: one line for people.
        code: librdkafka's name of the error, such as `_FENCED`; empty where there is none.
    """

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class RetriableError(BrokerError):
    """The same call may go through later."""


class RejoinError(RetriableError):
    """The group does not know this process, or not any more: join anew."""


class InstanceInUseError(RejoinError):
    """A process with the same `service.instance` has not left the group, or its session has not ended yet."""


class UndecidedError(RetriableError):
    """Whether a write succeeded could not be found out yet: `ExclusiveWriter.resume` finds out later."""


class AbortableError(BrokerError):
    """The open transaction must be aborted; the producer lives on."""


class FatalError(BrokerError):
    """The client can do nothing more: build a new one."""


class MembershipLostError(FatalError):
    """Another process took this one's place in the group, such as one with the same `service.instance`."""


class FencedError(FatalError):
    """Another writer took the place of this one, under the same transactional id."""
