"""A callback that does nothing, for calls that require one."""


def ignore(*_said: object) -> None:
    """Do nothing with progress, or with a delivery report if the commit reports the same."""
