"""How often an OIDC issuer is asked for its keys, and what holds while it does not answer; a real issuer."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tarry.api.access import oidc
from tarry.api.access.oidc import AGAIN_AFTER_MS, ASK_EVERY_MS, MOST_WAITING, Issuer, IssuerError
from tarry.config import Oidc
from tarry.testing import ManualClock
from tests.support import oidc_issuer
from tests.support.oidc_issuer import CLIENT, issuing


@pytest.fixture
def there() -> Iterator[oidc_issuer.Issuer]:
    with issuing() as found:
        yield found
        found.goes_on.set()


@asynccontextmanager
async def known(there: oidc_issuer.Issuer, clock: ManualClock) -> AsyncIterator[Issuer]:
    """What knows the issuer."""
    issuer = Issuer(Oidc(issuer=there.url, client_id=CLIENT, grants={"oncall": ("act",)}), clock)
    try:
        yield issuer
    finally:
        await issuer.close()


def test_all_who_need_unknown_keys_at_once_wait_for_one_answer(there: oidc_issuer.Issuer) -> None:
    async def run() -> None:
        async with known(there, ManualClock(0)) as issuer:
            good = [issuer.identity(there.token()) for _ in range(10)]
            strange = [issuer.identity(there.token({"kid": f"unknown-{n}"})) for n in range(40)]
            found = await asyncio.gather(*good, *strange)
            assert [one is not None for one in found] == [True] * 10 + [False] * 40
            assert there.asked_for_keys == 1

    asyncio.run(run())


def test_a_new_key_is_known_after_a_minute_at_most(there: oidc_issuer.Issuer) -> None:
    async def run() -> None:
        clock = ManualClock(0)
        async with known(there, clock) as issuer:
            assert await issuer.identity(there.token()) is not None
            there.rotate("second")
            assert await issuer.identity(there.token()) is None
            clock.advance(ASK_EVERY_MS)
            assert await issuer.identity(there.token()) is not None
            assert there.asked_for_keys == 2

    asyncio.run(run())


def test_an_issuer_that_fails_is_not_asked_again_at_once(there: oidc_issuer.Issuer) -> None:
    async def run() -> None:
        clock, there.is_away = ManualClock(0), True
        async with known(there, clock) as issuer:
            for _ in range(20):
                with pytest.raises(IssuerError, match="503"):
                    await issuer.identity(there.token())
            assert there.asked == 1
            there.is_away = False
            clock.advance(AGAIN_AFTER_MS)
            assert await issuer.identity(there.token()) is not None
            # One whose keys are known counts, although new ones cannot be had.
            before, there.is_away = there.asked, True
            clock.advance(ASK_EVERY_MS)
            for _ in range(20):
                with pytest.raises(IssuerError, match="503"):
                    await issuer.identity(there.token({"kid": "unknown"}))
                assert await issuer.identity(there.token()) is not None
            assert there.asked == before + 1

    asyncio.run(run())


def test_an_issuer_that_does_not_come_to_an_end_holds_few_requests_and_not_for_long(
    there: oidc_issuer.Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "WITHIN_S", 1.0)

    async def run() -> None:
        clock = ManualClock(0)
        async with known(there, clock) as issuer:
            assert await issuer.identity(there.token()) is not None
            clock.advance(ASK_EVERY_MS)
            before = there.asked
            there.goes_on.clear()
            unknown = there.token({"kid": "unknown"})
            waiting = [asyncio.create_task(issuer.identity(unknown)) for _ in range(2 * MOST_WAITING)]
            refused, waits = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert await issuer.identity(there.token()) is not None
            assert len(waits) == MOST_WAITING
            assert all("too many" in str(one.exception()) for one in refused)
            # Whoever goes away does not end the wait of the others.
            waits.pop().cancel()
            found = await asyncio.gather(*waits, return_exceptions=True)
            assert [str(one) for one in found if not isinstance(one, asyncio.CancelledError)] == [
                "the OIDC issuer does not answer: TimeoutError"
            ] * (MOST_WAITING - 1)
            assert there.asked == before + 1

    asyncio.run(run())


def test_what_is_closed_while_it_waits_for_the_issuer_ends_at_once(there: oidc_issuer.Issuer) -> None:
    async def run() -> None:
        there.goes_on.clear()
        async with known(there, ManualClock(0)) as issuer:
            waiting = asyncio.create_task(issuer.identity(there.token()))
            assert not (await asyncio.wait([waiting], timeout=0.1))[0]
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())
