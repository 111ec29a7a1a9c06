"""The types of the fields: durations, sizes, names, counts, and librdkafka's properties.

The tree in `tarry.config.tree` uses these types. A wrong value raises a `ValueError` with one line of text.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, SecretStr, StringConstraints

from tarry.headers import MAX_TOPIC_LENGTH, is_legal_topic
from tarry.units import format_duration, format_size, parse_duration_ms, parse_size_bytes

Location = tuple[str | int, ...]

#: `.wheel-12` is the longest suffix of an intake's internal topics.
_MAX_INTAKE_LENGTH = MAX_TOPIC_LENGTH - len(".wheel-12")

# The service must set these properties itself: it has its own field for them, or its guarantees depend on them. Where
# librdkafka has two names for a property, both are here.
_REFUSED_OPTIONS = {
    "bootstrap.servers": "set kafka.bootstrap_servers instead",
    "metadata.broker.list": "set kafka.bootstrap_servers instead",
    "group.id": "set service.group instead",
    "group.instance.id": "set service.instance instead",
    "group.protocol": "set service.group_protocol instead",
    **dict.fromkeys(
        (
            "acks",
            "allow.auto.create.topics",
            "auto.commit.enable",
            "auto.commit.interval.ms",
            "auto.offset.reset",
            "delivery.timeout.ms",
            "enable.auto.commit",
            "enable.auto.offset.store",
            "enable.gapless.guarantee",
            "enable.idempotence",
            "enable.partition.eof",
            "group.remote.assignor",
            "isolation.level",
            "max.in.flight",
            "max.in.flight.requests.per.connection",
            "message.send.max.retries",
            "message.timeout.ms",
            "partition.assignment.strategy",
            "partitioner",
            "request.required.acks",
            "retries",
            "transaction.timeout.ms",
            "transactional.id",
        ),
        "the service's guarantees depend on its value",
    ),
}
# For members of a KIP-848 group the broker sets these; librdkafka refuses to start with them.
CLASSIC_ONLY_OPTIONS = ("session.timeout.ms", "heartbeat.interval.ms", "group.protocol.type")
_SECRET_OPTION = re.compile(r"password|passphrase|secret|jaas|token|private|key\.pem|oauthbearer\.config")
# librdkafka's only property with an underscore, which must not become a dot when it is read from a variable's name.
_UNDERSCORED_OPTIONS = frozenset({"log_level"})


class FieldError(ValueError):
    """A value breaks a rule that pydantic cannot assign to a field by itself, such as a rule about several fields.

    Args:
        field: the field to name in the error; its path starts at the table in which the rule was checked.
        text: what is wrong.
    """

    def __init__(self, field: str | Location, text: str) -> None:
        super().__init__(text)
        self.field: Location = (field,) if isinstance(field, str) else field


def duration(least: str, most: str) -> BeforeValidator:
    """Return a validator for a duration in text, such as `20s`; the field's value is milliseconds.

    Args:
        least: the smallest duration that is allowed.
        most: the largest duration that is allowed.
    """
    return _quantity(
        f'a duration is text with a unit, such as "{most}"', parse_duration_ms, format_duration, least, most
    )


def size(least: str, most: str) -> BeforeValidator:
    """Return a validator for a size in text, such as `1GiB`; the field's value is bytes.

    Args:
        least: the smallest size that is allowed.
        most: the largest size that is allowed.
    """
    form = f'a size is text with a unit, such as "{least}"'
    return _quantity(form, parse_size_bytes, format_size, least, most)


def _quantity(
    form: str, parse: Callable[[str], int], show: Callable[[int], str], least: str, most: str
) -> BeforeValidator:
    least_number, most_number = parse(least), parse(most)

    def read(value: object) -> int:
        if not isinstance(value, str):
            raise ValueError(form)  # noqa: TRY004 - pydantic's way
        number = parse(value)
        if not least_number <= number <= most_number:
            raise ValueError(f"{show(number)} is not between {least} and {most}")
        return number

    return BeforeValidator(read)


def _refuse_bool_and_float(value: object) -> object:
    """Refuse `true` and `1.0`, which pydantic would accept as the integer 1."""
    if isinstance(value, bool | float):
        raise ValueError("should be a whole number")  # noqa: TRY004 - pydantic's way
    return value


def _legal_topic(name: str) -> str:
    if not is_legal_topic(name):
        raise ValueError("not a legal topic name (letters, digits, dot, underscore, hyphen; at most 249)")
    if name.startswith("__"):
        raise ValueError("names that start with __ are reserved for Kafka's internal topics")
    return name


def _intake_topic(name: str) -> str:
    if len(name) > _MAX_INTAKE_LENGTH:
        raise ValueError(
            f"must have at most {_MAX_INTAKE_LENGTH} characters: the names of its internal topics, such as .results, "
            "must not be longer than a topic name may be"
        )
    return name


Count = Annotated[int, BeforeValidator(_refuse_bool_and_float)]
TopicName = Annotated[str, AfterValidator(_legal_topic)]
IntakeTopic = Annotated[TopicName, AfterValidator(_intake_topic)]
# Both are part of transactional ids, which are part of a checkpoint of at most 4,095 characters.
Name = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{1,128}$")]
NameOrEmpty = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]{0,128}$")]
OptionValue = str | int | float | bool | SecretStr


def read_options(value: Mapping[str, object]) -> dict[str, OptionValue]:
    """Check librdkafka's properties.

    TOML reads `sasl.password = "x"` as a nested table; this function joins the names with a dot again.

    Returns:
        Name to value; a value that may be a secret is a `SecretStr`.

    Raises:
        FieldError: the service must set a property itself, or a value is not a scalar.
    """
    options: dict[str, OptionValue] = {}
    for name, option in flattened(value).items():
        if name in _REFUSED_OPTIONS:
            raise FieldError(name, f"may not be set: {_REFUSED_OPTIONS[name]}")
        if not isinstance(option, str | int | float | bool | SecretStr):
            raise FieldError(name, "should be a string, a number, true or false")
        is_open = isinstance(option, SecretStr) or not _SECRET_OPTION.search(name)
        options[name] = option if is_open else SecretStr(str(option))
    return options


def flattened(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Turn nested tables into one table, with dots between the names."""
    flat: dict[str, object] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            flat.update(flattened(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def option_name(variable: str) -> str:
    """Return the librdkafka property for a part of a variable's name: `sasl.password` for `sasl_password`."""
    return variable if variable in _UNDERSCORED_OPTIONS else variable.replace("_", ".")
