"""The two values that all of the edge speaks in."""

Place = tuple[str, int]
"""A topic and a partition."""

OffsetMetadata = tuple[int, str]
"""A committed offset and its metadata."""
