"""The bulk acts of `tarry api`, and the record of who did what: operations, in the topic `I.operations` (ADR 36)."""
