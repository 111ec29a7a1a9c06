"""One process of `tarry serve`, started by its supervisor: no command for people.

Run as `python -m tarry.cli.work DESCRIPTOR SUPERVISOR`: the descriptor of the channel, and the supervisor's process id.
Exit codes: 0 asked to end; 2 ended on purpose, starting it anew is of no use; 1 failed, start it anew.
"""

import pickle
import sys
from typing import Final

from tarry import logs
from tarry.errors import ConfigError, MembershipLostError, TarryError, UsageError
from tarry.service import app
from tarry.service.supervisor import Channel, Refused

FAILED: Final = 1
REFUSED: Final = 2


def main(arguments: list[str]) -> int:
    """Work; return the exit code."""
    descriptor, supervisor = arguments
    channel = Channel(int(descriptor), int(supervisor))
    orders: app.Orders = pickle.loads(channel.orders())  # noqa: S301 (from our own parent, by a socket that is ours alone)
    logger = logs.configure(orders.log_level, process=orders.index)
    try:
        app.work(orders, channel, logs.speaker(logger))
    except (UsageError, ConfigError, MembershipLostError) as error:
        logger.debug("process_refused", reason=str(error), exc_info=True)
        channel.refuse(Refused(str(error), isinstance(error, ConfigError)))
        return REFUSED
    except TarryError as error:
        logger.warning("process_failed", reason=str(error))
        return FAILED
    except Exception:  # a mistake of ours: the log must have it, and the supervisor starts us anew
        logger.exception("process_failed")
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
