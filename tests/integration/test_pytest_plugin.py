"""The fixtures of tarry's pytest plugin that start a real broker and a real service."""

import pytest

from tarry.jars.cache import cache_directory
from tests.support.brokers import no_broker
from tests.support.guide import examples

CACHE = cache_directory("kafka").parents[1]
"""Found before `pytester` moves the home directory."""

pytestmark = pytest.mark.broker


@pytest.mark.exhaustive
def test_the_guides_example_and_a_crash_run_on_one_broker_with_a_service_each(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE))
    *_, with_kafka = examples("testing.md")
    pytester.makepyfile(
        test_guide=with_kafka,
        test_more="""
        from datetime import timedelta

        import pytest

        SEEN = []

        def test_waiting_messages_survive_a_crash(tarry_service):
            orders = tarry_service.make_topic("orders", 2)
            with tarry_service.producer() as producer:
                for number in range(10):
                    producer.send(orders, b"%d" % number, b"k", delay=timedelta(seconds=2))
            tarry_service.process.kill()
            tarry_service.process.start()
            assert [record.value() for record in tarry_service.read(orders, 10)] == [b"%d" % n for n in range(10)]
            SEEN.append((tarry_service.bootstrap_servers, tarry_service.intake))

        def test_the_broker_is_shared_and_the_intake_is_not(tarry_service, tarry_broker):
            [(servers, intake)] = SEEN
            assert tarry_service.bootstrap_servers == tarry_broker.bootstrap_servers == servers
            assert tarry_service.intake != intake

        def test_a_missing_record_fails_the_test_with_a_reason(tarry_service):
            orders = tarry_service.make_topic("orders")
            with pytest.raises(AssertionError, match="0 of 1 records after 0.5 s"):
                tarry_service.read(orders, 1, within_s=0.5)
        """,
    )
    result = pytester.runpytest_subprocess("-W", "error")
    if refusals := [line for line in result.outlines if line.startswith("tarry_broker: ")]:
        no_broker(refusals[:1])
    result.assert_outcomes(passed=4)
