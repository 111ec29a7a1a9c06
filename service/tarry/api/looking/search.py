"""What the text in the search box is: a handle, an id, a place in a log, a topic, a key or a name; pure."""

from dataclasses import dataclass

from tarry.api.looking.message import parsed_place
from tarry.errors import HeaderError
from tarry.handle import Handle
from tarry.headers import is_legal_topic, parse_id


@dataclass(frozen=True, slots=True)
class Sought:
    """What a text can be. Several may apply.

    Attributes:
        handle: of a message.
        id: 36 characters, of a message or a schedule.
        place: topic, partition and offset.
        topic: a topic's name.
        key: a key.
        name: a name; with a key before it if the text is `KEY NAME`.
    """

    handle: Handle | None = None
    id: str | None = None
    place: tuple[str, int, int] | None = None
    topic: str | None = None
    key: bytes | None = None
    name: bytes | None = None


def sought(text: str) -> Sought:
    """Return what a text can be; the first that fits of handle, id and place excludes the rest."""
    text = text.strip()
    try:
        return Sought(handle=Handle.parse(text))
    except HeaderError:
        pass
    id_ = parse_id(text.encode()) if len(text) == 36 else None
    if id_ is not None:
        return Sought(id=id_.decode(), key=text.encode())
    place = parsed_place(text)
    if place is not None and is_legal_topic(place[0]):
        return Sought(place=place, key=text.encode())
    if not text:
        return Sought()
    topic = text if is_legal_topic(text) else None
    key, space, name = text.rpartition(" ")
    return Sought(topic=topic, key=text.encode(), name=name.encode() if space and key else None)
