"""Chooses free ports on the loopback address, for listeners that must return on the same port after a restart.

If a program binds to port 0, the kernel chooses a port from its ephemeral range, which it also uses for the source
ports of outgoing connections. While a broker on such a port is down, a client that tries to reconnect may get this port
as its source port. The client is then connected to itself, and the broker cannot use its port again. So this module
chooses ports below the ephemeral range.
"""

import random
import socket
from pathlib import Path

HOST = "127.0.0.1"
_LOWEST = 10_240
_KERNEL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_KERNEL_LOW = 32_768
_DRAWS = 200
# The system's random source: two programs that seed `random` with the same number would choose the same ports.
_CHANCE = random.SystemRandom()


def is_free(port: int) -> bool:
    """Return whether a server could listen on `port` of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Java's server sockets do, so that old connections in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port(*besides: int) -> int:
    """Return a port on which no process listens. Another process may still take it before the caller does.

    Args:
        *besides: ports that must not be chosen.
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
