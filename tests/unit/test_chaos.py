"""The harness starts a service again that the client library has aborted, and takes any other end for a fault."""

import random
from typing import Any, cast

import pytest

from tarry.testing.serve import ServeError
from tests.support.chaos import ABORTED, BY_THE_CLIENT_LIBRARY, Chaos


class Ended:
    """A service that has ended by itself."""

    def __init__(self, code: int, log: str) -> None:
        self.code: int | None = code
        self.log = log

    def check_running(self) -> None:
        if self.code is not None:
            raise ServeError(f"ended by itself with {self.code}")

    def tail(self, _lines: int) -> str:
        return self.log

    def wait_ended(self) -> int:
        assert self.code is not None
        return self.code

    def start(self) -> "Ended":
        self.code = None
        return self

    def wait_serving(self) -> None:
        self.check_running()


def chaos(service: Ended) -> Chaos:
    one = cast("Any", service)
    return Chaos([one], cast("Any", None), cast("Any", None), random.Random(1))


def test_a_service_that_the_client_library_has_aborted_is_started_again() -> None:
    service = Ended(ABORTED, f"python: rdkafka_queue.h:1086: {BY_THE_CLIENT_LIBRARY}.\nFatal Python error: Aborted")
    harm = chaos(service)
    harm.start_aborted()
    harm.start_aborted()
    service.check_running()
    assert harm.done == {"aborted by the client library": 1}


@pytest.mark.parametrize(
    ("code", "log"),
    [(ABORTED, "Fatal Python error: Aborted"), (1, BY_THE_CLIENT_LIBRARY), (139, "Segmentation fault")],
)
def test_any_other_end_is_a_fault(code: int, log: str) -> None:
    with pytest.raises(ServeError, match=f"with {code}"):
        chaos(Ended(code, log)).start_aborted()
