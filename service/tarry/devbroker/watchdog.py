"""Runs one command, and ends it when the process that asked for it has ended, even by kill -9.

This is a separate script that imports nothing of tarry. Run it as
`python -I watchdog.py PARENT GRACE_S REMOVE COMMAND…`. It runs between the parent process and Java for two reasons.
Only a parent learns of its child's end reliably; a process id may be reused. And Java has no option to watch a process.

- Standard input carries the parent's orders. `S` stops the command: SIGTERM, and SIGKILL after `GRACE_S` seconds. `K`
  kills it. The end of the input means that the parent has ended: the watchdog stops the command, and then deletes the
  directory `REMOVE`, if it is not empty text. A fork of the parent may keep the input open, so the watchdog also checks
  its parent's process id.
- On standard output the watchdog writes the command's process id, in one line.
- The command's output goes to standard error. The watchdog ends with the command's exit code, or 128 + n for signal n.

On Linux, the command is also killed if the watchdog ends first.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from types import FrameType

_LOOK_EVERY_S = 0.5
_PR_SET_PDEATHSIG = 1


class _Asked:
    """Remembers whether a signal has asked this process to end."""

    def __init__(self) -> None:
        self.to_end = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.to_end = True


def _spawn(command: list[str]) -> subprocess.Popen[bytes]:
    me = os.getpid()
    prctl = None
    if sys.platform == "linux":
        with contextlib.suppress(ImportError, AttributeError, OSError):
            import ctypes  # noqa: PLC0415 (a Python may be built without it)

            prctl = ctypes.CDLL(None).prctl

    def die_with_me() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != me:
                os._exit(1)

    return subprocess.Popen(  # noqa: S603 (what the parent asked for)
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        start_new_session=True,  # so that a signal can reach the command and all that it has started, and nothing else
        close_fds=False,  # the command inherits the descriptors that the parent has passed to this process
        preexec_fn=die_with_me,  # noqa: PLW1509 (this process has one thread)
    )


def _end(child: subprocess.Popen[bytes], grace_s: float) -> None:
    if grace_s > 0:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
    child.kill()


def main(arguments: list[str]) -> int:
    """Run the command, watch the parent, and return the command's exit code."""
    parent, grace_s, remove, *command = arguments
    asked = _Asked()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, asked)
    # Only the child holds the write end of this pipe, so the read end becomes ready as soon as the child has ended.
    life_read, life_write = os.pipe()
    os.set_inheritable(life_write, True)
    child = _spawn(command)
    os.close(life_write)
    with contextlib.suppress(BrokenPipeError):
        os.write(1, b"%d\n" % child.pid)
    os.close(1)
    orphaned = False
    while True:
        ready, _, _ = select.select([0, life_read], [], [], _LOOK_EVERY_S)
        if life_read in ready:
            break
        order = os.read(0, 1) if 0 in ready else None
        orphaned = order == b"" or os.getppid() != int(parent)
        if orphaned or order is not None or asked.to_end:
            _end(child, 0.0 if order == b"K" else float(grace_s))
            break
    code = child.wait()
    if orphaned and remove:
        shutil.rmtree(remove, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
