"""Progress lines for the user, on stderr; stdout is for results."""

import sys


def tell(line: str) -> None:
    """Write a progress line to stderr."""
    sys.stderr.write(f"tarry: {line}\n")
    sys.stderr.flush()
