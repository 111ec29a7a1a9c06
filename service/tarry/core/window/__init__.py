"""The messages that a partition holds in memory: in the hot window until they are due, then ready or parked."""
