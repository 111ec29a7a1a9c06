"""Values as pages show them: as JSON, text, or hex, the first 64 KiB; pure."""

import json
from typing import Final, NamedTuple

MOST_BYTES: Final = 64 * 1024
FORMS: Final = ("json", "text", "hex")
_ROW: Final = 16


class Value(NamedTuple):
    """A value as a page shows it.

    Attributes:
        text: as asked.
        note: what the text leaves out, or why it is not as asked.
        size_bytes: how many bytes the value has.
        is_null: whether it is null.
    """

    text: str = ""
    note: str = ""
    size_bytes: int = 0
    is_null: bool = False


def form_of(raw: bytes | None) -> str:
    """Return how a value is shown if nobody asks for another way."""
    some = (raw or b"")[:MOST_BYTES]
    try:
        text = some.decode()
    except UnicodeDecodeError as error:
        return "text" if len(raw or b"") > MOST_BYTES and error.start > MOST_BYTES - 4 else "hex"
    if text.lstrip()[:1] in {"{", "["} and len(raw or b"") <= MOST_BYTES:
        return "json"
    return "hex" if any(ord(char) < 32 and char not in "\t\r\n" for char in text) else "text"


def value_as(raw: bytes | None, form: str) -> Value:
    """Return a value as a page shows it."""
    if raw is None:
        return Value(is_null=True)
    some, size = raw[:MOST_BYTES], len(raw)
    cut = f"The first 64 KiB of {size:,} bytes." if size > MOST_BYTES else ""
    if form == "hex":
        return Value(_hex(some), cut, size)
    text = some.decode("utf-8", "backslashreplace")
    if form == "json":
        try:
            found = json.loads(raw) if size <= MOST_BYTES else None
        except (ValueError, RecursionError):
            return Value(text, f"It is not JSON. {cut}".strip(), size)
        if found is None and cut:
            return Value(text, f"{cut} JSON is laid out only up to that size.", size)
        return Value(json.dumps(found, indent=2, ensure_ascii=False), "Laid out; the value itself may differ.", size)
    return Value(text, cut, size)


def _hex(raw: bytes) -> str:
    rows = []
    for at in range(0, len(raw), _ROW):
        part = raw[at : at + _ROW]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        rows.append(f"{at:06x}  {part.hex(' '):<47}  {shown}")
    return "\n".join(rows)
