"""The cost of parsing a request: `python -m benches.bench_request`.

The goal is 3 µs for a typical message on CPython 3.11: target, delay, id and one application header.
"""

import argparse
import time

from tarry.core.request.intake_policy import IntakePolicy
from tarry.core.request.reader import Header, RequestReader
from tarry.core.request.request import Rejection
from tarry.native import core

_NOW_MS = 1_767_225_600_000
_ID = b"8e8c5b0c-0f5d-4b3e-9a55-0c6b1a3f4d21"
_TARGET: Header = ("tarry-target", b"orders")
_DELAY: Header = ("tarry-delay-ms", b"30000")
_CASES: dict[str, list[Header] | None] = {
    "typical: target, delay, id, one other": [_TARGET, _DELAY, ("tarry-id", _ID), ("trace", b"00-4bf9-01")],
    "least: target, delay; the id is derived": [_TARGET, _DELAY],
    "RFC 3339, ten others": [
        _TARGET,
        ("tarry-deliver-at", b"2026-01-01T00:00:30Z"),
        ("tarry-id", _ID),
        *[(f"other-{number}", b"value") for number in range(10)],
    ],
    "rejected: no headers": None,
    "rejected: bad delay": [_TARGET, ("tarry-delay-ms", b"soon"), ("tarry-id", _ID)],
}


def measure_us(headers: list[Header] | None, count: int, rounds: int) -> float:
    """Microseconds per record, the best of some rounds."""
    reader = RequestReader(IntakePolicy("tarry.delayed", targets=("orders*", "payments")))
    read = reader.read
    best_ns = None
    for _ in range(rounds):
        start_ns = time.perf_counter_ns()
        for offset in range(count):
            read(3, offset, _NOW_MS, headers, _NOW_MS)
        spent_ns = time.perf_counter_ns() - start_ns
        best_ns = spent_ns if best_ns is None else min(best_ns, spent_ns)
    return (best_ns or 0) / count / 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="records a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(core())
    print(f"{'request':42} {'µs a record':>12}")
    for name, headers in _CASES.items():
        is_rejected = isinstance(
            RequestReader(IntakePolicy("tarry.delayed")).read(0, 0, _NOW_MS, headers, _NOW_MS), Rejection
        )
        if is_rejected != name.startswith("rejected"):
            raise SystemExit(f"{name}: parsed to something else than its name says")
        print(f"{name:42} {measure_us(headers, options.count, options.rounds):12.2f}")


if __name__ == "__main__":
    main()
