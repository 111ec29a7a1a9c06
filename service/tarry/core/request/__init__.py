"""Requests: records of the intake, parsed, checked against the intake's policy, translated from other dialects."""
