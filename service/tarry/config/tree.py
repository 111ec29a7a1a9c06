"""The tree of the configuration: sections, defaults, bounds, and the rules about several fields.

A field has its name in the file plus the unit of its value inside the program: `width = "20s"` is `width_ms` with the
value 20000. All sections are frozen.
"""

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, field_validator, model_validator

from tarry.config.fields import (
    CLASSIC_ONLY_OPTIONS,
    Count,
    FieldError,
    IntakeTopic,
    Name,
    NameOrEmpty,
    OptionValue,
    TopicName,
    duration,
    read_options,
    size,
)
from tarry.headers import owner_of_internal_topic
from tarry.units import format_duration

_GLOB = re.compile(r"[a-zA-Z0-9._*?\[\]!-]{1,249}")
_SERVERS = re.compile(r"[^\s,]+(?:\s*,\s*[^\s,]+)*")


class _Section(BaseModel):
    """A table of the file."""

    # Errors must not show inputs, because one of them may be a password.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Kafka(_Section):
    """`[kafka]`: the address of the cluster, and properties of librdkafka.

    Args:
        bootstrap_servers: `HOST:PORT`, or several separated by commas.
        options: librdkafka's properties. Secrets are masked when this object is turned into text.
    """

    bootstrap_servers: str = "127.0.0.1:9092"
    options: dict[str, OptionValue] = Field(default_factory=dict)

    @field_validator("bootstrap_servers")
    @classmethod
    def _check_servers(cls, value: str) -> str:
        if not _SERVERS.fullmatch(value.strip()):
            raise ValueError("should be HOST:PORT, or several separated by commas")
        return value.strip()

    @field_validator("options", mode="before")
    @classmethod
    def _check_options(cls, value: object) -> object:
        return read_options(value) if isinstance(value, Mapping) else value

    def properties(self) -> dict[str, str | int | float]:
        """Return the properties for a librdkafka client: servers and options, with secrets in plain text."""
        plain: dict[str, str | int | float] = {"bootstrap.servers": self.bootstrap_servers}
        for name, option in self.options.items():
            if isinstance(option, SecretStr):
                plain[name] = option.get_secret_value()
            else:
                plain[name] = str(option).lower() if isinstance(option, bool) else option
        return plain


MOST_PROCESSES = 64
"""The largest number of worker processes. A checkpoint must have room for the transactional id of the last one."""


class Service(_Section):
    """`[service]`: settings of one `tarry serve`.

    Args:
        group: the consumer group, and the first part of all transactional ids.
        group_protocol: `classic`, or `consumer` (KIP-848).
        instance: a name for static membership, unique for each `tarry serve`; empty: dynamic membership.
        processes: the number of worker processes.
        memory_budget_bytes: the memory for messages, per process.
        transaction_interval_ms: the least time from the start of one firing transaction to the start of the next.
        transaction_max_messages: the largest number of messages in a transaction.
    """

    group: Name = "tarry"
    group_protocol: Literal["classic", "consumer"] = "classic"
    instance: NameOrEmpty = ""
    processes: Count = Field(default=1, ge=1, le=MOST_PROCESSES)
    memory_budget_bytes: Annotated[int, size("16MiB", "1TiB")] = Field(default=2**30, alias="memory_budget")
    transaction_interval_ms: Count = Field(default=5, ge=1, le=10_000)
    transaction_max_messages: Count = Field(default=5_000, ge=1, le=100_000)


class Wheel(_Section):
    """`[wheel]`: the timing wheel in memory.

    Args:
        tick_ms: the resolution: due times are rounded up to a multiple of it.
        size: the number of buckets of a level.
    """

    tick_ms: Count = Field(default=1, ge=1, le=60_000)
    size: Count = Field(default=512, ge=2, le=65_536)


class Overflow(_Section):
    """`[overflow]`: the timing wheel on Kafka.

    Args:
        from_ms: an intake whose longest delay is at most this has no overflow wheel.
        width_ms: the width of a level-1 bucket.
        size: how many times wider a bucket of one level is than a bucket of the level below.
    """

    from_ms: Annotated[int, duration("1s", "1d")] = Field(default=60_000, alias="from")
    width_ms: Annotated[int, duration("1s", "1h")] = Field(default=20_000, alias="width")
    size: Count = Field(default=16, ge=2, le=32)

    @model_validator(mode="after")
    def _check_hot_window(self) -> Self:
        if self.from_ms < self.width_ms:
            width = format_duration(self.width_ms)
            raise FieldError("from", f"must be at least overflow.width ({width}): memory must hold at least one bucket")
        return self


MOST_COPIES = 3
"""The replication factor where the configuration leaves it open, and the cluster has enough brokers."""

SAYS_WHERE_TO = {
    "etf1": "scheduler-target-topic",
    "karafka": "schedule_target_topic",
    "timebridge": "X-Timebridge-Where",
}
"""The dialects that have a header for the target, and that header."""


class Intake(_Section):
    """`[[intake]]`: a topic whose messages wait.

    Args:
        topic: the intake's name, and the prefix of the names of its internal topics.
        partitions: the number of partitions of the intake. Its internal topics have a multiple of it.
        replication: the replication factor of all of these topics; 0: as many as there are brokers, at most 3.
        max_delay_ms: the longest delay that a header may ask for.
        targets: globs over topic names; a message for any other topic is dead.
        keep_ms: the least age, by its timestamp, at which a done record is deleted from the intake.
        delay_ms: a fixed delay for every record; None: the headers give the delay.
        target: the target of every record. Set it together with `delay_ms`, or with a dialect that has no header for
            the target.
        dialect: another scheduler, whose headers the service reads instead of its own.
        same_key: `replace`: in a dialect, the key of a record is its name.
        names_limit: the most names under which messages wait, in each partition; 44 bytes of memory and journal each.
    """

    topic: IntakeTopic
    partitions: Count = Field(default=4, ge=1, le=10_000)
    replication: Count = Field(default=0, ge=0, le=32_767)
    max_delay_ms: Annotated[int, duration("1s", "36500d")] = Field(default=30 * 86_400_000, alias="max_delay")
    targets: tuple[str, ...] = ("*",)
    keep_ms: Annotated[int, duration("0ms", "36500d")] = Field(default=7 * 86_400_000, alias="keep")
    delay_ms: Annotated[int, duration("1ms", "36500d")] | None = Field(default=None, alias="delay")
    target: TopicName | None = None
    dialect: Literal["etf1", "karafka", "timebridge", "rabbitmq"] | None = None
    same_key: Literal["replace"] | None = None
    names_limit: Count = Field(default=1_000_000, ge=0, le=100_000_000)

    @field_validator("targets")
    @classmethod
    def _check_globs(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("needs at least one glob")
        for place, glob in enumerate(value):
            if not _GLOB.fullmatch(glob):
                raise FieldError((place,), "not a glob over topic names, such as orders.*")
        return value

    @model_validator(mode="after")
    def _check_same_key(self) -> Self:
        if self.same_key is not None and self.dialect is None:
            raise FieldError("same_key", "needs a dialect: without one, the header tarry-name gives a message its name")
        if self.same_key is not None and not self.names_limit:
            raise FieldError("same_key", "needs a names_limit above 0, because each key is a name")
        return self

    @model_validator(mode="after")
    def _check_fixed_delay(self) -> Self:
        if self.delay_ms is None:
            self._check_target_without_delay()
            return self
        if self.dialect is not None:
            raise FieldError("dialect", "may not be set together with delay: a fixed delay needs no headers")
        if self.target is None:
            raise FieldError("target", "missing: an intake with a fixed delay needs a fixed target")
        if "targets" in self.model_fields_set:
            raise FieldError("targets", "may not be set together with target")
        if "max_delay_ms" in self.model_fields_set:
            raise FieldError("max_delay", "may not be set together with delay")
        return self

    def _check_target_without_delay(self) -> None:
        if self.target is None:
            return
        if self.dialect is None:
            raise FieldError("delay", "missing: an intake with a fixed target needs a fixed delay")
        if name := SAYS_WHERE_TO.get(self.dialect):
            raise FieldError(
                "target", f"may not be set together with dialect {self.dialect}: its header {name} gives the target"
            )
        if "targets" in self.model_fields_set:
            raise FieldError("targets", "may not be set together with target")

    @property
    def is_fixed(self) -> bool:
        """Whether every record has the same delay and the same target."""
        return self.delay_ms is not None

    @property
    def may_repeat(self) -> bool:
        """Whether it may accept schedules."""
        return not self.is_fixed and self.dialect is None

    @property
    def longest_delay_ms(self) -> int:
        """The longest delay of a message, which the overflow wheel must cover."""
        return self.max_delay_ms if self.delay_ms is None else self.delay_ms


class Http(_Section):
    """`[http]`: health and metrics.

    Args:
        host: the address to listen on.
        port: the port; 0: a free one, which the service logs.
    """

    host: str = Field(default="127.0.0.1", min_length=1)
    port: Count = Field(default=8080, ge=0, le=65_535)


class Oidc(_Section):
    """`[api.oidc]`: an OpenID Connect issuer that vouches for people and programs.

    Args:
        issuer: its URL, exactly as its tokens name it.
        client_id: this application, at the issuer.
        client_secret: its secret there; empty for a public client.
        audience: whom bearer tokens must be for; empty: `client_id`.
        algorithms: the algorithms by which tokens may be signed.
        scopes: what a login asks for.
        name_claim: the claim that names a principal.
        grants_claim: the claim whose words `grants` has.
        grants: the grants of a word, such as `oncall = ["act", "look-values"]`.
    """

    issuer: Annotated[str, StringConstraints(pattern=r"^https?://[^\s?#]+$", max_length=500)]
    client_id: str = Field(min_length=1, max_length=256)
    client_secret: SecretStr = SecretStr("")
    audience: str = Field(default="", max_length=256)
    algorithms: tuple[Literal["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"], ...] = (
        "RS256",
        "ES256",
    )
    scopes: tuple[str, ...] = ("openid", "profile")
    name_claim: str = Field(default="sub", min_length=1)
    grants_claim: str = Field(default="groups", min_length=1)
    grants: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @field_validator("issuer")
    @classmethod
    def _check_issuer(cls, value: str) -> str:
        host = urlsplit(value).hostname or ""
        if value.startswith("http://") and host not in LOOPBACK_NAMES:
            raise ValueError(
                "must be https: over http, an attacker could change the issuer's answers, and log in as anybody"
            )
        return value

    @field_validator("algorithms", "scopes")
    @classmethod
    def _check_not_empty(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value:
            raise ValueError("needs at least one")
        return value


LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
"""The names and addresses by which only this machine reaches a server."""


class Api(_Section):
    """`[api]`: HTTP for senders and the console (`tarry api`).

    Args:
        host: the address to listen on.
        port: the port; 0: a free one, which the log says.
        tokens: the file of the tokens, which `tarry api token` writes; empty: no tokens, and the address must be a
            loopback one.
        session_keys: the file with the keys that sign the cookies of browsers, one in each line, the newest first;
            empty: a random one for each process.
        hosts: the names in URLs by which browsers reach it, beside those of the loopback.
        prefix: what URLs begin with where a proxy passes on a part of its paths, such as `/tarry`.
        proxies: the addresses of proxies whose `X-Forwarded-…` headers are believed.
        environment: the name of the environment, shown on each page.
        colour: the colour of the environment, shown on each page.
        is_read_only: whether nothing can be sent or changed.
        oidc: the issuer; None: there is none.
        max_body_bytes: the largest body of a request, and the largest line of a batch.
        rate: how many requests a second each principal may make at each replica; lines of a batch count.
        requests: how many requests are handled at the same time, at each replica.
        streams: how many streams of events each principal may have at each replica.
        all_streams: how many streams of events a replica has.
        metrics: whether `/metrics` is served.
        access_log: whether the log has a line for each request.
    """

    host: str = Field(default="127.0.0.1", min_length=1)
    port: Count = Field(default=8090, ge=0, le=65_535)
    tokens: str = ""
    session_keys: str = ""
    hosts: tuple[str, ...] = ()
    prefix: Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9._~-]+)*$")] = ""
    proxies: tuple[str, ...] = ()
    environment: Annotated[str, StringConstraints(max_length=40)] = ""
    colour: Literal["", "grey", "green", "blue", "orange", "red"] = ""
    is_read_only: bool = Field(default=False, alias="read_only")
    oidc: Oidc | None = None
    max_body_bytes: Annotated[int, size("1KiB", "64MiB")] = Field(default=4 * 2**20, alias="max_body")
    rate: Count = Field(default=2_000, ge=1, le=1_000_000)
    requests: Count = Field(default=512, ge=1, le=65_536)
    streams: Count = Field(default=50, ge=0, le=10_000)
    all_streams: Count = Field(default=500, ge=0, le=10_000)
    metrics: bool = True
    access_log: bool = True


class Config(_Section):
    """The whole tree. `load` builds it."""

    kafka: Kafka = Kafka()
    service: Service = Service()
    wheel: Wheel = Wheel()
    overflow: Overflow = Overflow()
    intakes: tuple[Intake, ...] = Field(default=(Intake(topic="tarry.delayed"),), alias="intake")
    http: Http = Http()
    api: Api = Api()

    def with_copies(self, brokers: int) -> Self:
        """Return the configuration for a cluster of so many brokers: `replication` 0 becomes a number."""
        copies = max(1, min(brokers, MOST_COPIES))
        settled = [i if i.replication else i.model_copy(update={"replication": copies}) for i in self.intakes]
        return self.model_copy(update={"intakes": tuple(settled)})

    @field_validator("intakes")
    @classmethod
    def _check_intakes(cls, value: tuple[Intake, ...]) -> tuple[Intake, ...]:
        if not value:
            raise ValueError("needs at least one intake")
        return value

    @model_validator(mode="after")
    def _check_ticks(self) -> Self:
        if self.overflow.width_ms % self.wheel.tick_ms:
            raise FieldError(
                ("wheel", "tick_ms"), "should divide overflow.width: a tick must not belong to two buckets"
            )
        return self

    @model_validator(mode="after")
    def _check_group_protocol(self) -> Self:
        if self.service.group_protocol == "consumer":
            for name in CLASSIC_ONLY_OPTIONS:
                if name in self.kafka.options:
                    text = 'may not be set with service.group_protocol = "consumer": the broker sets it'
                    raise FieldError(("kafka", "options", name), text)
        return self

    @model_validator(mode="after")
    def _check_topics(self) -> Self:
        places = {intake.topic: place for place, intake in enumerate(self.intakes)}
        for first, second in combinations(range(len(self.intakes)), 2):
            one, other = self.intakes[first].topic, self.intakes[second].topic
            # Kafka replaces dots with _ in metric names, so it accepts only one of the topics a.b and a_b.
            if one.replace(".", "_") == other.replace(".", "_"):
                raise FieldError(("intake", second, "topic"), f"the same name as intake[{first}].topic: {one}")
        for place, intake in enumerate(self.intakes):
            owner = owner_of_internal_topic(intake.topic)
            if owner in places:
                raise FieldError(("intake", place, "topic"), f"is the name of an internal topic of intake {owner}")
            if intake.target is not None:
                self._check_fixed_target(place, intake.target)
        return self

    def _check_fixed_target(self, place: int, target: str) -> None:
        """Check that a chain of intakes with fixed delays ends at a topic that is not an intake."""
        location = ("intake", place, "target")
        by_topic = {intake.topic: intake for intake in self.intakes}
        owner = owner_of_internal_topic(target)
        if owner in by_topic:
            raise FieldError(location, f"is an internal topic of intake {owner}")
        seen = {self.intakes[place].topic}
        following: str | None = target
        while following in by_topic:
            if following in seen:
                raise FieldError(location, f"leads back to {following}: its messages would circulate permanently")
            if not by_topic[following].is_fixed:
                raise FieldError(
                    location,
                    f"intake {following} needs headers, but a message from an intake with a fixed delay has none",
                )
            seen.add(following)
            following = by_topic[following].target
