"""Which results tell a consumer with ordered retry that what it sent off never comes back."""

import json

import pytest

from tarry.client.retry.core.names import Names
from tarry.client.retry.missing import Lost, lost_by

NAMES = Names("tasks", "group", "intake")
SOURCE = "intake/3/17"


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({"outcome": "dead", "target": NAMES.retry, "reason": "too-large"}, "dead too-large"),
        ({"outcome": "cancelled", "target": NAMES.retry}, "cancelled"),
        ({"outcome": "dead", "target": None, "reason": "target-not-allowed"}, "dead target-not-allowed"),
    ],
)
def test_a_result_that_may_be_ours_is_examined(result: dict[str, object], why: str) -> None:
    assert lost_by(json.dumps(result | {"source": SOURCE}).encode(), NAMES) == Lost(("intake", 3), 17, why)


@pytest.mark.parametrize(
    "result",
    [
        {"outcome": "fired", "target": NAMES.retry, "source": SOURCE},
        {"outcome": "dead", "target": "elsewhere", "reason": "too-large", "source": SOURCE},
        # Others' records that make no sense: each would be looked for in the intake by itself.
        {"outcome": "dead", "target": None, "reason": "no-target", "source": SOURCE},
        {"outcome": "dead", "target": None, "reason": "unreadable-headers", "source": SOURCE},
        # What no service of this intake has written.
        {"outcome": "dead", "target": NAMES.retry, "reason": "too-large"},
        {"outcome": "dead", "target": NAMES.retry, "source": "nonsense"},
        {"outcome": "dead", "target": NAMES.retry, "source": "intake/x/1"},
        {"outcome": "dead", "target": NAMES.retry, "source": "another/0/1"},
        {"outcome": ["dead"], "target": NAMES.retry, "source": SOURCE},
        {"outcome": "dead", "target": {}, "source": SOURCE},
    ],
)
def test_results_of_others_and_records_that_are_no_results_are_ignored(result: dict[str, object]) -> None:
    assert lost_by(json.dumps(result).encode(), NAMES) is None


def test_a_result_that_is_no_json_is_ignored() -> None:
    assert lost_by(b"{", NAMES) is None
    assert lost_by(None, NAMES) is None
