"""Requests that ask for what cannot be: each is refused, and none is a fault of the program."""

from itertools import product

import httpx
import pytest

from tarry.testing import LiveService

TIMES = (
    "0001-01-01T00:00:00+23:59",
    "0001-01-01T00:00:00Z",
    "1970-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-23:59",
)
KNOWN = {"1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"}


@pytest.mark.parametrize("path", ["/v1/pending", "/v1/pending/messages", "/", "/waiting"])
def test_times_outside_the_years_1970_to_9999_are_refused(http: httpx.Client, path: str) -> None:
    for begin, end in product(TIMES, TIMES):
        found = http.get(path, params={"due_from": begin, "due_until": end})
        assert found.status_code in ({200, 422} if {begin, end} <= KNOWN else {422}), (begin, end, found.text)


@pytest.mark.parametrize("number", [-(10**30), -1, 2**63, 10**30])
def test_a_dead_letter_whose_place_cannot_be_is_not_found(
    http: httpx.Client, service: LiveService, number: int
) -> None:
    for place in (f"{number}/0", f"0/{number}"):
        for path in (f"/dead/{service.intake}/{place}", f"/dead/{service.intake}/{place}/value"):
            assert http.get(path).status_code in {404, 422}, path
