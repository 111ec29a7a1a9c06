"""What the tests need of a machine, where it is not there."""

import os
from typing import Final, NoReturn

import pytest

ALLOW_SKIP: Final = "ALLOW_SKIP"


def lacks(reason: str) -> NoReturn:
    """End a test that needs what is not there: failed, or skipped where ALLOW_SKIP=1 says so.

    Args:
        reason: what is missing.
    """
    if os.environ.get(ALLOW_SKIP) == "1":
        pytest.skip(reason)
    pytest.fail(f"{reason} ({ALLOW_SKIP}=1 skips the tests that need it)", pytrace=False)
