"""Whether an intake does for a consumer that sends off what failed."""

from dataclasses import replace

import pytest

from tarry.client.retry.core.fitness import objection
from tarry.client.retry.core.names import Names
from tarry.client.retry.core.policy import RetryPolicy
from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.status import Status

NAMES = Names("orders", "billing", "in")
POLICY = RetryPolicy(longest_ms=60_000)
FIT = IntakePolicy("in", ("orders.*",), 60_000, intakes=frozenset({"in"}))
SAID = "(partition 1, as the service said at 2023-11-14T22:13:20.000Z)"


def told(*policies: IntakePolicy) -> list[Status]:
    return [Status(number, policy, "tarry.one", 1_700_000_000_000) for number, policy in enumerate(policies)]


def test_an_intake_that_sends_back_in_time_is_fit() -> None:
    assert objection(told(FIT, replace(FIT, targets=("*",))), NAMES, POLICY) is None


def test_nothing_is_known_against_an_intake_of_which_nothing_is_known() -> None:
    assert objection([], NAMES, POLICY) is None


@pytest.mark.parametrize(
    ("unfit", "why"),
    [
        (
            replace(FIT, targets=("orders", "bills*")),
            "intake in does not allow the target orders.billing.retry: add it to the intake's `targets`",
        ),
        (
            replace(FIT, fixed_delay_ms=100, fixed_target="out"),
            "intake in has a fixed delay, and sends all to out: use an intake without a fixed delay",
        ),
        (
            replace(FIT, max_delay_ms=59_999),
            (
                "intake in takes delays of up to 59999 ms, and the policy has longest_ms=60000: raise the intake's "
                "`max_delay`, or lower longest_ms"
            ),
        ),
        (replace(FIT, dialect="karafka"), "intake in reads the headers of karafka: use an intake without a dialect"),
    ],
    ids=["target", "fixed", "delay", "dialect"],
)
def test_one_partition_that_would_not_send_back_is_enough(unfit: IntakePolicy, why: str) -> None:
    assert objection(told(FIT, unfit), NAMES, POLICY) == f"{why} {SAID}"
