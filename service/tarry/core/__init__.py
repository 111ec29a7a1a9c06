"""One partition's state and decisions, pure: no client library, no thread, no clock, no logger."""
