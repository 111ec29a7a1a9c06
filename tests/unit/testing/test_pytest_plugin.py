"""The plugin that pytest finds where tarry is installed: what needs no broker, and that it is not felt."""

import subprocess
import sys

import pytest

from tests.support.guide import examples


def test_the_guides_examples_without_kafka_run(pytester: pytest.Pytester) -> None:
    without_kafka, retrying, _ = examples("testing.md")
    pytester.makepyfile(without_kafka, test_retrying=retrying)
    pytester.runpytest_inprocess("-W", "error").assert_outcomes(passed=3)


def test_each_test_has_a_service_and_a_clock_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from datetime import timedelta
        import pytest

        @pytest.mark.parametrize("run", [1, 2])
        def test_it(tarry_clock, tarry_fake, run):
            assert tarry_clock is tarry_fake.clock
            began_ms = tarry_clock.now_ms()
            tarry_fake.make_topic("orders")
            tarry_fake.send("orders", b"v", delay=timedelta(seconds=1))
            tarry_clock.advance(1_000)
            assert [record.value for record in tarry_fake.delivered("orders")] == [b"v"]
            assert began_ms < 1_700_000_000_100
        """
    )
    pytester.runpytest_inprocess("-W", "error").assert_outcomes(passed=2)


def test_a_broker_that_cannot_start_says_why_in_one_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeconftest(
        """
        import tarry.devbroker.broker
        from tarry.errors import UsageError

        def none():
            raise UsageError("there is no Java")

        tarry.devbroker.broker.find_java = none
        """
    )
    pytester.makepyfile("def test_it(tarry_service): pass")
    result = pytester.runpytest_subprocess("-W", "error")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["tarry_broker: there is no Java"])


def test_a_run_that_uses_none_of_it_imports_none_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_it(request):
            assert request.config.pluginmanager.has_plugin("tarry")
            ours = {name for name in sys.modules if name.partition(".")[0] in {"tarry", "confluent_kafka", "pydantic"}}
            assert ours == {"tarry", "tarry.testing", "tarry.testing.pytest_plugin"}
        """
    )
    pytester.runpytest_subprocess("-W", "error", "--strict-markers", "--strict-config").assert_outcomes(passed=1)


def test_the_fixtures_are_listed_with_what_they_are(pytester: pytest.Pytester) -> None:
    listed = pytester.runpytest_subprocess("--fixtures").stdout
    for name in ("tarry_fake", "tarry_clock", "tarry_service", "tarry_broker"):
        listed.fnmatch_lines([f"{name}* -- *tarry/testing/pytest_plugin.py:*"])


def test_the_plugin_can_be_disabled(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(tarry_fake): pass")
    result = pytester.runpytest_subprocess("-p", "no:tarry")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'tarry_fake' not found*"])


def test_the_documented_fixtures_exist() -> None:
    everything = "import tarry.testing as t; [getattr(t, name) for name in t.__all__]; print(len(t.__all__))"
    done = subprocess.run([sys.executable, "-c", everything], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 10
    with pytest.raises(ImportError, match="Nothing"):
        from tarry.testing import Nothing  # noqa: F401, PLC0415 - it must not be there
