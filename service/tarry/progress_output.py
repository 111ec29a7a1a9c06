"""What a program tells people while it works: lines on stderr, beside what goes to stdout."""

import sys


def tell(line: str) -> None:
    """Write one line of progress."""
    sys.stderr.write(f"tarry: {line}\n")
    sys.stderr.flush()
