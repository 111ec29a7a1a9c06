"""What a record of the intake asks for: parsed, checked against the intake's policy, translated from other dialects."""
