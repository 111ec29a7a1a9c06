"""Waiting messages: as a table, as a forecast, and rescheduled or cancelled in bulk by a plan."""
