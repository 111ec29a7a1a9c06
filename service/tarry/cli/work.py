"""One worker process of `tarry serve`. The supervisor starts it; it is not a command for people.

Run as `python -m tarry.cli.work DESCRIPTOR SUPERVISOR`: the file descriptor of the channel, and the supervisor's
process id. Exit codes: 0, the supervisor asked it to end; 1, it failed, and the supervisor restarts it; 2, it cannot
run, and a restart would not help.
"""

import pickle
import sys
from typing import Final

from tarry import logs
from tarry.errors import ConfigError, MembershipLostError, TarryError, UsageError
from tarry.service import app
from tarry.service.supervisor import Channel, StartRefused

FAILED: Final = 1
REFUSED: Final = 2


def main(arguments: list[str]) -> int:
    """Run the worker until it ends; return the exit code."""
    descriptor, supervisor = arguments
    channel = Channel(int(descriptor), int(supervisor))
    orders: app.Orders = pickle.loads(channel.orders())  # noqa: S301 (from our own parent, by a socket that is ours alone)
    logger = logs.configure(orders.log_level, process=orders.index)
    try:
        app.work(orders, channel, logs.speaker(logger))
    except (UsageError, ConfigError, MembershipLostError) as error:
        logger.debug("process_refused", reason=str(error), exc_info=True)
        channel.refuse(StartRefused(str(error), isinstance(error, ConfigError)))
        return REFUSED
    except TarryError as error:
        logger.warning("process_failed", reason=str(error))
        return FAILED
    except Exception:  # a bug: log it, and let the supervisor restart this process
        logger.exception("process_failed")
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
