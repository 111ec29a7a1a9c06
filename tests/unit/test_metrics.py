"""Counting, adding up over processes and lives, and what Prometheus reads."""

import json
import random
import re
from itertools import accumulate
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tarry.service.metrics import Exposition, Snapshot, Tally, Totals
from tarry.service.metrics.families import (
    DEAD,
    FAMILIES,
    FIRED,
    HELD_BYTES,
    LATENESS,
    RESTARTS,
    SERVED,
    TRANSACTION_SECONDS,
    WAITING,
    Family,
)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples_of(text: bytes) -> Samples:
    """All samples by name and labels; the parser fails on what is no exposition."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def fired(count: float) -> Snapshot:
    return Snapshot({(FIRED.name, "in"): count}, {}, {})


def test_names_are_prometheus_s_units_are_base_units_and_nothing_is_labelled_by_what_a_sender_chooses() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family.name.startswith("tarry_")
        assert not family.name.endswith(("_total", "_ms", "_milliseconds", "_count", "_sum"))
        assert set(family.labels) <= {
            "intake",
            "partition",
            "code",
            "decision",
            "process",
            "target",
            "level",
            "within",
            "outcome",
            "topic",
        }
        assert "target" not in family.labels or family.kind == "gauge"  # it is gone with the last message for it
        assert family.help.endswith(".")
        assert "process" not in family.labels or family.kind == "gauge"


@pytest.mark.parametrize(("kind", "bounds"), [("histogram", ()), ("histogram", (2.0, 1.0)), ("counter", (1.0,))])
def test_a_family_with_impossible_bounds_is_refused(kind: str, bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="ascending bounds"):
        Family("tarry_x", "X.", kind, (), bounds)  # type: ignore[arg-type]  # the very thing under test


def test_a_batch_is_counted_as_its_messages_one_by_one() -> None:
    choose = random.Random(7)
    for size in (1, 2, 500):
        due_ms = sorted(1_000_000 - choose.choice([0, 1, 2, 3, 5, 10, 40, 640, 10_000, 5_000_000]) for _ in range(size))
        batch, single = Tally(), Tally()
        batch.observe_lateness("in", due_ms, 1_000_000)
        for one in due_ms:
            single.observe(LATENESS, (1_000_000 - one) / 1000, "in")
        (left,), (right,) = batch.snapshot().histograms.values(), single.snapshot().histograms.values()
        assert left[:-1] == right[:-1]
        assert left[-1] == pytest.approx(right[-1])
        assert sum(left[:-1]) == size


def test_a_value_on_a_bound_is_in_its_bucket() -> None:
    tally = Tally()
    for value in (0.002, 0.0021, 31.0):
        tally.observe(TRANSACTION_SECONDS, value)
    values = tally.snapshot().histograms[TRANSACTION_SECONDS.name,]
    assert [place for place, count in enumerate(values[:-1]) if count] == [0, 1, len(TRANSACTION_SECONDS.bounds)]


def test_a_snapshot_survives_the_wire() -> None:
    tally = Tally()
    tally.count(DEAD, 2, "in.with.dots", "bad-id")
    tally.observe(LATENESS, 0.5, "in.with.dots")
    tally.replace_gauges({(WAITING.name, "in.with.dots"): 4})
    snapshot = tally.snapshot()
    assert Snapshot.decode(json.loads(json.dumps(snapshot.encode()))) == snapshot


def test_a_snapshot_is_not_changed_by_what_is_counted_later() -> None:
    tally = Tally()
    tally.count(FIRED, 1, "in")
    tally.observe(TRANSACTION_SECONDS, 1.0)
    snapshot = tally.snapshot()
    tally.count(FIRED, 1, "in")
    tally.observe(TRANSACTION_SECONDS, 1.0)
    assert snapshot.counters[FIRED.name, "in"] == 1
    assert sum(snapshot.histograms[TRANSACTION_SECONDS.name,][:-1]) == 1


def test_a_counter_never_decreases_when_a_process_is_restarted() -> None:
    totals = Totals({"intake": ["in"]})
    seen = []
    for process, count in ((0, 10), (1, 5), (0, None), (0, 0), (0, 3), (0, None), (0, None), (1, 6)):
        if count is None:
            totals.end(process)
        else:
            totals.update(process, fired(count))
        seen.append(totals.sum().counters[FIRED.name, "in"])
    assert seen == [10, 15, 15, 15, 18, 18, 18, 19]


def test_histograms_are_added_bucket_by_bucket_over_lives() -> None:
    totals = Totals({"intake": ["in"]})
    for lateness_s in (0.001, 0.3, 9_999.0):
        tally = Tally()
        tally.observe(LATENESS, lateness_s, "in")
        totals.update(0, tally.snapshot())
        totals.end(0)
    values = totals.sum().histograms[LATENESS.name, "in"]
    assert (sum(values[:-1]), values[0], values[-2]) == (3, 1, 1)
    assert values[-1] == pytest.approx(9_999.301)


def test_gauges_are_those_of_the_living_added_up_or_by_process() -> None:
    totals = Totals({})
    for process, waiting in ((0, 4), (1, 6)):
        totals.update(process, Snapshot({}, {}, {(WAITING.name, "in"): waiting, (HELD_BYTES.name,): waiting * 100}))
    assert totals.sum().gauges == {
        (WAITING.name, "in"): 10,
        (HELD_BYTES.name, "0"): 400,
        (HELD_BYTES.name, "1"): 600,
    }
    totals.end(1)
    assert totals.sum().gauges == {(WAITING.name, "in"): 4, (HELD_BYTES.name, "0"): 400}


def test_a_partition_that_no_process_serves_has_a_row_too() -> None:
    totals = Totals({}, {"in": 2, "other": 1})
    rows = {(SERVED.name, "in", "0"): 0, (SERVED.name, "in", "1"): 0, (SERVED.name, "other", "0"): 0}
    assert totals.sum().gauges == rows
    totals.update(0, Snapshot({}, {}, {(SERVED.name, "in", "1"): 1}))
    assert totals.sum().gauges == {**rows, (SERVED.name, "in", "1"): 1}
    totals.end(0)
    assert totals.sum().gauges == rows


def test_counters_of_known_labels_begin_at_zero() -> None:
    samples = samples_of(Exposition(Totals({"intake": ["a", "b"]}).sum, "1.2.3").text())
    assert samples["tarry_fired_messages_total", (("intake", "a"),)] == 0
    assert samples["tarry_lateness_seconds_count", (("intake", "b"),)] == 0
    assert samples["tarry_process_restarts_total", ()] == 0
    assert samples["tarry_build_info", (("version", "1.2.3"),)] == 1
    assert not any(name == "tarry_dead_messages_total" for name, _ in samples)


def test_prometheus_reads_cumulative_buckets_labels_with_quotes_and_what_the_supervisor_counts() -> None:
    totals = Totals({"intake": ["in"]})
    tally = Tally()
    tally.count(DEAD, 2, 'a"b\\c\n', "bad-id")
    for value in (0.001, 0.003, 100.0):
        tally.observe(TRANSACTION_SECONDS, value)
    totals.update(0, tally.snapshot())
    totals.own.count(RESTARTS)
    samples = samples_of(Exposition(totals.sum, "1").text())
    assert samples["tarry_dead_messages_total", (("code", "bad-id"), ("intake", 'a"b\\c\n'))] == 2
    assert samples["tarry_process_restarts_total", ()] == 1
    buckets = [value for (name, _), value in samples.items() if name == "tarry_transaction_duration_seconds_bucket"]
    assert buckets == list(accumulate([1, 1, *[0] * (len(TRANSACTION_SECONDS.bounds) - 2), 1]))
    assert samples["tarry_transaction_duration_seconds_sum", ()] == pytest.approx(100.004)


def test_each_metric_is_documented_with_its_labels() -> None:
    rows = {}
    for line in (Path(__file__).parents[2] / "docs/metrics.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| `tarry_"):
            name, labels = line.split("|")[1:3]
            rows[name.strip(" `")] = tuple(re.findall(r"`(\w+)`", labels))
    shown = {family.name + "_total" * (family.kind == "counter"): family.labels for family in FAMILIES}
    assert rows == {**shown, "tarry_build_info": ("version",)}
