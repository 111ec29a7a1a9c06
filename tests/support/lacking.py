"""Ends tests that need something that this machine does not have."""

import os
from typing import Final, NoReturn

import pytest

ALLOW_SKIP: Final = "ALLOW_SKIP"


def lacks(reason: str) -> NoReturn:
    """Fail a test because something is missing; skip it if ALLOW_SKIP=1 is set.

    Args:
        reason: what is missing.
    """
    if os.environ.get(ALLOW_SKIP) == "1":
        pytest.skip(reason)
    pytest.fail(f"{reason} ({ALLOW_SKIP}=1 skips the tests that need it)", pytrace=False)
