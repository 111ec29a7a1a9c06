"""`tarry check`: what it looks at, and the command."""

from tarry.cli.check.command import check

__all__ = ["check"]
