"""The public names, the packages that they need, and the error if an extra is missing."""

import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import requires

import pytest

PUBLIC = {
    "tarry": {
        "AsyncDelayedProducer",
        "BrokerError",
        "ConfigError",
        "Deduplicator",
        "DelayedProducer",
        "ExclusiveWriter",
        "Handle",
        "HeaderError",
        "OutcomeReader",
        "PostgresSink",
        "RetriableError",
        "RetryPolicy",
        "RetryingConsumer",
        "TarryError",
        "TransactionalDelays",
        "UndecidedError",
        "__version__",
    },
    "tarry.client": {
        "AsyncDelayedProducer",
        "CancelReceipt",
        "DelayedMessage",
        "DelayedProducer",
        "NameCancelReceipt",
        "OutcomeMetrics",
        "OutcomeReader",
        "PendingCancel",
        "PendingMessage",
        "PendingNameCancel",
        "PendingSchedule",
        "Receipt",
        "RepeatedMessage",
        "RescheduleReceipt",
        "ScheduleReceipt",
        "TransactionalDelays",
    },
    "tarry.client.dedup": {"DedupWindow", "Deduplicator", "DeliveredMessage", "PostgresSink"},
    "tarry.client.outcome": {"OutcomeMetrics", "OutcomeReader", "parsed_result"},
    "tarry.client.retry": {
        "GaveUp",
        "HandlerTransaction",
        "OnError",
        "RetryDecision",
        "RetryMessage",
        "RetryPolicy",
        "RetryingConsumer",
    },
    "tarry.testing": {
        "PRODUCE",
        "FakeBroker",
        "FakeService",
        "Fate",
        "Fault",
        "Hook",
        "KafkaProxy",
        "LiveService",
        "ManualClock",
        "ProcessKilled",
        "Record",
        "Serve",
        "ServeConfig",
        "Side",
        "Step",
    },
}
"""A name that goes, or comes, is a change that users see: it belongs in the changelog."""

CLIENT_ONLY = """
import sys

MISSING = {"cronsim", "tzdata", "prometheus_client", "pydantic", "rich", "structlog", "typer", "psycopg", "pyspark"}

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def without_extras(program: str) -> "subprocess.CompletedProcess[str]":
    """Run a program where nothing but the client is installed."""
    return subprocess.run([sys.executable, "-c", CLIENT_ONLY + program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_these_and_all_can_be_imported(module: str) -> None:
    found = import_module(module)
    assert set(found.__all__) == PUBLIC[module]
    assert all(hasattr(found, name) for name in PUBLIC[module])
    assert PUBLIC[module] <= set(dir(found)) | {"OutcomeMetrics"}
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'nothing'"):
        _ = found.nothing


def test_the_client_alone_needs_one_distribution() -> None:
    needed = [line for line in requires("tarry") or [] if "extra ==" not in line]
    assert [re.split("[<>=]", line)[0] for line in needed] == ["confluent-kafka"]


def test_without_any_extra_all_of_the_client_can_be_imported() -> None:
    program = "import tarry, tarry.client, tarry.client.dedup, tarry.client.outcome, tarry.client.retry\n"
    program += "print(*[getattr(tarry, name) for name in tarry.__all__], sep='\\n')\n"
    program += "print(tarry.client.RescheduleReceipt)"
    done = without_extras(program)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(PUBLIC["tarry"]) + 1


def test_a_name_whose_distribution_is_missing_says_what_to_install() -> None:
    done = without_extras("from tarry.client import OutcomeMetrics")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "ImportError: OutcomeMetrics needs prometheus-client: pip install prometheus-client"


@pytest.mark.parametrize("command", ["serve", "send", "spark"])
def test_a_command_without_its_extra_is_one_line(command: str) -> None:
    program = f"sys.argv[1:] = [{command!r}]\nfrom tarry.__main__ import main\nmain()"
    done = without_extras(program)
    assert done.returncode == 2
    assert re.fullmatch(r"tarry: the command needs \w+: pip install 'tarry\[service\]'\n", done.stderr)
