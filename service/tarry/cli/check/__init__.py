"""`tarry check`: the command and its checks."""

from tarry.cli.check.command import check

__all__ = ["check"]
