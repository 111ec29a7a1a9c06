"""What a partition holds in memory: the hot window until messages are due, then what is ready or parked."""
