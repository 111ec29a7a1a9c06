"""The progress of a partition: how it is tracked, committed (journal, checkpoint), and restored by a take-over."""
