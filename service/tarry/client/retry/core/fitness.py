"""Checks whether an intake fits a retrying consumer, by the status that the owners of its partitions publish; pure."""

from collections.abc import Iterable

from tarry.client.retry.core.names import Names
from tarry.client.retry.core.policy import RetryPolicy
from tarry.core.request.header_values import HeaderFault
from tarry.core.request.status import Status
from tarry.core.request.target_names import TargetNames
from tarry.headers import TARGET
from tarry.units import format_instant


def objection(statuses: Iterable[Status], names: Names, policy: RetryPolicy) -> str | None:
    """Return why failed messages would not come back, in one line that says what to do; None: nothing is wrong.

    Args:
        statuses: the statuses of the intake's partitions.
        names: the names of the consumer's topics.
        policy: the consumer's retry policy.
    """
    for status in statuses:
        why = _objection(status, names, policy)
        if why is not None:
            return f"{why} (partition {status.partition}, as the service said at {format_instant(status.at_ms)})"
    return None


def _objection(status: Status, names: Names, policy: RetryPolicy) -> str | None:
    intake, accepts = names.intake, status.policy
    if accepts.fixed_delay_ms is not None:
        return (
            f"intake {intake} has a fixed delay, and sends all to {accepts.fixed_target}: "
            "use an intake without a fixed delay"
        )
    if accepts.dialect is not None:
        return f"intake {intake} reads the headers of {accepts.dialect}: use an intake without a dialect"
    if isinstance(TargetNames(accepts, TARGET).read({TARGET: names.retry.encode()}), HeaderFault):
        return f"intake {intake} does not allow the target {names.retry}: add it to the intake's `targets`"
    if accepts.max_delay_ms < policy.longest_ms:
        return (
            f"intake {intake} takes delays of up to {accepts.max_delay_ms} ms, and the policy has longest_ms="
            f"{policy.longest_ms}: raise the intake's `max_delay`, or lower longest_ms"
        )
    return None
