"""For whoever must be given a callback, and is not asked what it says."""


def ignore(*_said: object) -> None:
    """Take no note: of progress, or of a delivery report, where the commit says the same."""
