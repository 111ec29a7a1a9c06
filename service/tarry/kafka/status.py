"""Reading from `I.status` what the owners of an intake's partitions accept; see `tarry.core.request.status`."""

from collections.abc import Callable

from tarry.clock import Clock
from tarry.core.request.status import Status, parsed_status
from tarry.kafka.compacted import last_records
from tarry.kafka.offsets import Offsets
from tarry.kafka.settings import Cluster
from tarry.kafka.topics import STATUS, TopicAdmin


def statuses_of(
    intake: str,
    cluster: Cluster,
    topics: TopicAdmin,
    offsets: Offsets,
    clock: Clock,
    on_warning: Callable[[str], None],
) -> dict[int, Status]:
    """Return the published status of an intake's partitions, by number; those without one are left out.

    Args:
        intake: its name.
        cluster: the Kafka cluster.
        topics: finds topics.
        offsets: asks the brokers for offsets.
        clock: monotonic time.
        on_warning: takes the text of an error from which a client recovers by itself, or about an unreadable record.

    Raises:
        RetriableError: the brokers do not answer, or do not let us read the topic.
    """
    name = intake + STATUS
    partitions = topics.partitions([intake, name])
    if intake not in partitions or name not in partitions:
        return {}
    place = (name, 0)
    start = offsets.starts([place])[place]
    end = offsets.ends([place], committed=True)[place]
    statuses = {}
    for key, record in last_records(cluster, place, start, end, clock, on_warning).items():
        if (value := record.value()) is None:  # such as those of `broker_time`
            continue
        try:
            status = parsed_status(value)
        except ValueError as error:
            on_warning(f"{name}: key {key!r}: {error}")
            continue
        if status.partition < partitions[intake]:
            statuses[status.partition] = status
    return statuses
