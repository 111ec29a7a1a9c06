"""Convert values of the change log to values of Delta columns: scalars, arrays, structs and maps, to any depth.

The log has scalars as text, and all other values as JSON. A value that its column cannot hold becomes null, and
`is_bad` is true for it. Nothing is truncated or dropped silently, so an object with a field that the struct lacks is
bad too. As in Spark's casts, a number is rounded to the scale of its column, and a date keeps the day of a time.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_SCALARS: Final = (BinaryType, BooleanType, DateType, NumericType, StringType, TimestampNTZType, TimestampType)
_NEVER: Final = False


def can_hold(of: DataType) -> bool:
    """Whether changes can be written to a column of this type."""
    if isinstance(of, ArrayType):
        return can_hold(of.elementType)
    if isinstance(of, MapType):
        return isinstance(of.keyType, StringType) and can_hold(of.valueType)
    if isinstance(of, StructType):
        return all(can_hold(field.dataType) for field in of)
    return isinstance(of, _SCALARS)


def is_scalar(of: DataType) -> bool:
    """Whether a key may have a column of this type."""
    return isinstance(of, _SCALARS)


def value(text: Column, of: DataType) -> Column:
    """The value; null if there is none, or the column cannot hold it.

    Args:
        text: the value in the log.
        of: the column's type; `can_hold` must be true for it.
    """
    return _scalar(text, of) if is_scalar(of) else _nested(f.try_parse_json(text), of)


def is_bad(text: Column, of: DataType) -> Column:
    """Whether the column cannot hold the value, or a required nested value is missing.

    Args:
        text: the value in the log.
        of: the column's type; `can_hold` must be true for it.
    """
    if is_scalar(of):
        return text.isNotNull() & _scalar(text, of).isNull()
    read = f.try_parse_json(text)
    return text.isNotNull() & (read.isNull() | _is_bad(read, of))


def _scalar(text: Column, of: DataType) -> Column:
    if isinstance(of, BinaryType):  # bytes are Base64 in the log
        return f.try_to_binary(text, f.lit("base64"))
    return text.try_cast(of)


def _nested(read: Column, of: DataType) -> Column:
    if isinstance(of, ArrayType):
        return f.transform(_items(read), lambda item: _nested(item, of.elementType))
    if isinstance(of, MapType):
        return f.transform_values(_members(read), lambda _, member: _nested(member, of.valueType))
    if isinstance(of, StructType):
        members = _members(read)
        fields = [_nested(_member(members, field.name), field.dataType).alias(field.name) for field in of]
        return f.when(members.isNotNull(), f.struct(*fields))
    return _scalar(_text(read), of)


def _is_bad(read: Column, of: DataType) -> Column:
    """Whether the type cannot hold a value inside JSON. A null alone is no fault."""
    if isinstance(of, ArrayType):
        inside = _items(read)
        faults = f.exists(inside, lambda item: _is_bad_part(item, of.elementType, nullable=of.containsNull))
    elif isinstance(of, MapType):
        inside = _members(read)
        faults = f.exists(
            f.map_values(inside), lambda member: _is_bad_part(member, of.valueType, nullable=of.valueContainsNull)
        )
    elif isinstance(of, StructType):
        inside = _members(read)
        names = f.array(*[f.lit(field.name) for field in of])
        faults = _any(
            [
                f.size(f.array_except(f.map_keys(inside), names)) > 0,
                *[_is_bad_part(_member(inside, field.name), field.dataType, nullable=field.nullable) for field in of],
            ]
        )
    else:
        inside = _scalar(_text(read), of)
        faults = f.lit(_NEVER)
    return ~_is_null(read) & (inside.isNull() | f.coalesce(faults, f.lit(_NEVER)))


def _is_bad_part(read: Column, of: DataType, *, nullable: bool) -> Column:
    return _is_bad(read, of) if nullable else _is_null(read) | _is_bad(read, of)


def _is_null(read: Column) -> Column:
    return read.isNull() | f.coalesce(f.is_variant_null(read), f.lit(_NEVER))


def _items(read: Column) -> Column:
    return f.try_variant_get(read, "$", "array<variant>")


def _members(read: Column) -> Column:
    return f.try_variant_get(read, "$", "map<string,variant>")


def _member(members: Column, name: str) -> Column:
    return f.try_element_at(members, f.lit(name))


def _text(read: Column) -> Column:
    return f.try_variant_get(read, "$", "string")


def _any(columns: Iterable[Column]) -> Column:
    return reduce(lambda left, right: left | right, columns)
