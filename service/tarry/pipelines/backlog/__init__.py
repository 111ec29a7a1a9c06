"""What waits: as a table, as a forecast, and moved or taken back in bulk by a plan."""
