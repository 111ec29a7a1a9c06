"""How many worlds a test of random worlds runs."""

import pytest


@pytest.fixture(params=[pytest.param(4, id="some"), pytest.param(20, id="many", marks=pytest.mark.exhaustive)])
def worlds(request: pytest.FixtureRequest) -> int:
    """The number of random worlds."""
    number: int = request.param
    return number
