"""The two value types that all modules of the Kafka edge use."""

Place = tuple[str, int]
"""A topic and a partition."""

OffsetMetadata = tuple[int, str]
"""A committed offset and its metadata."""
