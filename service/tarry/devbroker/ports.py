"""Free ports on the loopback address, for listeners that must come back on the same one.

A port that the kernel hands out (bind to 0) lies in the range from which it also numbers outgoing
connections. While a broker on such a port is down, a client that keeps trying to reach it may be given that
very port as its own, is then connected to itself, and the broker cannot come back. So ports are drawn from
below that range.
"""

import random
import socket
from pathlib import Path

HOST = "127.0.0.1"
_LOWEST = 10_240
_KERNEL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_KERNEL_LOW = 32_768
_DRAWS = 200
# Not the seeded one that a program may have: two that began alike would draw alike.
_CHANCE = random.SystemRandom()


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java's server sockets do: what only lingers in TIME_WAIT is not in the way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port(*besides: int) -> int:
    """A port on which nothing listens; another process may still take it before the caller does.

    Args:
        *besides: none of these, on which something will listen.
    """
    below = _kernel_low()
    if below > _LOWEST:
        for _ in range(_DRAWS):
            port = _CHANCE.randrange(_LOWEST, below)
            if port not in besides and is_free(port):
                return port
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as any_port:
        any_port.bind((HOST, 0))
        chosen: int = any_port.getsockname()[1]
        return chosen


def _kernel_low() -> int:
    try:
        return int(_KERNEL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_KERNEL_LOW
