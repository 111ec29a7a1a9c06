"""What a named record does: decisions, superseded copies, and what is written about names."""

from collections.abc import Sequence

from tarry.core.batch import Answer, Batch
from tarry.core.message import HeldMessage
from tarry.core.progress.journal import decode_entry
from tarry.core.progress.name_index import NameEntry
from tarry.core.progress.name_records import NameRecords, NamesEntry, ShardEntry
from tarry.core.request.naming import Condition, hash_of
from tarry.core.window.memory import Memory
from tarry.core.window.names import LEAST_DEBT_BYTES, Names, NameVerdict
from tarry.headers import Outcome, derived_id, id_bytes
from tests.support.naming import no_names

X, Y = hash_of(b"k", b"x"), hash_of(b"k", b"y")
DUE_MS = 1_700_000_000_000
LIMITS = 1_000, 1 << 40


def message(offset: int, name: bytes | None = X, due_ms: int | None = None, id_: int | None = None) -> HeldMessage:
    id_text = derived_id("intake", 0, offset if id_ is None else id_)
    due_ms = DUE_MS + offset if due_ms is None else due_ms
    one = HeldMessage(due_ms, offset, b"k", b"v", None, False, "orders", -1, id_text)
    one.name = name
    return one


def cancel(offset: int, name: bytes = X) -> HeldMessage:
    one = HeldMessage(0, offset, None, None, None, False, "", -1, derived_id("intake", 0, offset))
    one.name = name
    return one


def answers_of(names: Names) -> list[tuple[Outcome, int, int | None, str]]:
    """Commit the decisions; return outcome, offset, other offset and reason of each result."""
    return [
        (one.outcome, one.offset, None if one.other is None else one.other[1], one.reason)
        for decision in commit(names).decisions
        for one in decision.answers
    ]


def commit(names: Names, delivered: Sequence[HeldMessage] = ()) -> Batch:
    batch = Batch()
    names.take(batch, *LIMITS)
    batch.due += delivered
    names.settle(batch)
    names.confirm(batch)
    return batch


def wants_back(names: Names) -> bool:
    return names.is_wanted_back


def pointer_of(names: Names) -> int | None:
    return names.pointer


def waiting(*held: HeldMessage) -> Names:
    """Names under which these messages wait, committed."""
    names = no_names()
    for one in held:
        assert names.decide(one, Condition.ALWAYS)[0] is NameVerdict.KEEP
    commit(names)
    return names


# -- deciding ------------------------------------------------------------------------------------------------------


def test_the_first_message_of_a_name_is_scheduled_and_has_no_result_yet() -> None:
    names = no_names()
    assert names.decide(message(5), Condition.ALWAYS) == (NameVerdict.KEEP, None)
    assert not names.is_admitted(message(5))
    assert answers_of(names) == []
    assert names.is_admitted(message(5))
    assert (names.count, names.decided_below) == (1, 6)


def test_the_next_message_of_a_name_replaces_the_one_that_waits() -> None:
    names = waiting(message(5))
    verdict, older = names.decide(message(7), Condition.ALWAYS)
    assert verdict is NameVerdict.KEEP
    assert older == NameEntry(5, DUE_MS + 5, id_bytes(message(5).id))
    (decision,) = commit(names).decisions
    assert decision.answers == (Answer(Outcome.REPLACED, message(5).id, 5, DUE_MS + 5, None, ("replaced_by", 7)),)
    assert decision.record is None
    assert names.is_superseded(message(5))
    assert not names.is_superseded(message(7))


def test_a_message_only_if_none_waits_is_scheduled_where_none_does_and_skipped_where_one_does() -> None:
    names = no_names()
    assert names.decide(message(5), Condition.ABSENT) == (NameVerdict.KEEP, None)
    assert names.decide(message(7), Condition.ABSENT) == (NameVerdict.DONE, None)
    assert answers_of(names) == [(Outcome.SCHEDULED, 5, None, ""), (Outcome.SKIPPED, 7, 5, "waiting")]
    assert not names.is_superseded(message(5))


def test_a_message_only_if_one_waits_replaces_it_and_is_skipped_where_none_does() -> None:
    names = waiting(message(5))
    assert names.decide(message(6, Y), Condition.PRESENT) == (NameVerdict.DONE, None)
    assert names.decide(message(7), Condition.PRESENT)[0] is NameVerdict.KEEP
    assert answers_of(names) == [
        (Outcome.SKIPPED, 6, None, "not-waiting"),
        (Outcome.REPLACED, 5, 7, ""),
        (Outcome.SCHEDULED, 7, 5, ""),
    ]
    assert names.count == 1


def test_a_message_with_name_id_and_due_time_of_the_one_that_waits_is_a_duplicate_whatever_its_condition() -> None:
    for condition in Condition:
        names = waiting(message(5))
        assert names.decide(message(7, due_ms=DUE_MS + 5, id_=5), condition) == (NameVerdict.DONE, None)
        assert answers_of(names) == [(Outcome.DUPLICATE, 7, 5, "")]
        assert not names.is_superseded(message(5))


def test_a_message_with_the_same_id_and_another_due_time_replaces() -> None:
    names = waiting(message(5))
    assert names.decide(message(7, id_=5), Condition.ALWAYS)[0] is NameVerdict.KEEP
    assert answers_of(names) == [(Outcome.REPLACED, 5, 7, "")]


def test_a_cancel_takes_the_message_that_waits_and_is_too_late_where_none_does() -> None:
    names = waiting(message(5))
    verdict, older = names.decide_cancel(cancel(7))
    assert verdict is NameVerdict.DONE
    assert older is not None
    assert older.offset == 5
    assert names.decide_cancel(cancel(8)) == (NameVerdict.DONE, None)
    assert answers_of(names) == [
        (Outcome.CANCELLED, 5, 7, ""),
        (Outcome.CANCELLED, 7, 5, ""),
        (Outcome.CANCEL_TOO_LATE, 8, None, ""),
    ]
    assert names.is_superseded(message(5))


def test_names_are_apart() -> None:
    names = waiting(message(5), message(6, Y))
    names.decide_cancel(cancel(7, Y))
    assert not names.is_superseded(message(5))
    assert names.is_superseded(message(6, Y))


def test_a_new_name_beyond_the_limit_is_refused_and_a_known_one_is_replaced() -> None:
    names = waiting(message(5))
    names.limit = 1
    refused = message(6, Y)
    assert names.decide(refused, Condition.ALWAYS) == (NameVerdict.REFUSE, None)
    assert names.decide(message(7), Condition.ALWAYS)[0] is NameVerdict.KEEP
    assert names.is_superseded(message(6, Y))
    assert not names.is_superseded(refused)  # it waits for its dead letter
    commit(names, [refused])
    assert names.count == 1


def test_what_is_in_flight_is_not_decided_upon_until_its_transaction_is_over() -> None:
    older = message(5)
    for condition in Condition:
        for is_committed in (True, False):
            names = waiting(older)
            names.begin_side([older])
            assert wants_back(names) is False
            assert names.decide(message(7), condition) == (NameVerdict.WAIT, None)
            assert names.decide_cancel(cancel(7)) == (NameVerdict.WAIT, None)
            assert wants_back(names) is True
            assert not names.has_pending
            names.end_side([older], committed=is_committed)
            assert wants_back(names) is False
            verdict, _ = names.decide(message(7), condition)
            is_skipped = condition is (Condition.PRESENT if is_committed else Condition.ABSENT)
            assert verdict is (NameVerdict.DONE if is_skipped else NameVerdict.KEEP)


def test_another_name_is_decided_while_one_is_in_flight() -> None:
    names = waiting(message(5))
    names.begin_side([message(5)])
    assert names.decide(message(7, Y), Condition.ALWAYS)[0] is NameVerdict.KEEP
    assert not names.is_wanted_back


# -- superseded copies -----------------------------------------------------------------------------------------------


def test_a_message_without_a_name_is_never_superseded_and_always_admitted() -> None:
    names = no_names()
    assert not names.is_superseded(message(9, None))
    assert names.is_admitted(message(9, None))


def test_a_name_is_free_again_when_its_message_was_delivered() -> None:
    names = waiting(message(5))
    commit(names, [message(5)])
    assert names.count == 0
    assert names.decide(message(7), Condition.ABSENT) == (NameVerdict.KEEP, None)


def test_a_message_that_was_adopted_without_its_name_may_be_delivered() -> None:
    names = Names(("intake", 0), NameRecords(), None, 6, 0, Memory())
    assert not names.is_superseded(message(5))
    assert names.is_admitted(message(5))
    assert names.take(Batch(), *LIMITS) == 6
    assert names.is_superseded(message(6))


def test_the_delivery_of_an_older_message_leaves_the_name_to_the_newer_one() -> None:
    names = waiting(message(5))
    names.decide(message(7), Condition.ALWAYS)
    commit(names, [message(5)])
    assert not names.is_superseded(message(7))


def test_dropped_copies_are_completed_behind_all_decisions() -> None:
    names = waiting(message(5))
    names.decide(message(7), Condition.ALWAYS)
    names.decide(message(8), Condition.ALWAYS)
    names.drop(message(5))
    first, second = Batch(), Batch()
    assert names.take(first, 1, 1 << 40) == 0, "nothing with a name leaves before the rest is decided"
    assert (len(first.decisions), first.dropped) == (1, [])
    names.settle(first)
    names.confirm(first)
    assert names.take(second, 2, 1 << 40) == 9
    assert (len(second.decisions), [one.sequence for one in second.dropped]) == (1, [5])


def test_a_name_that_waits_for_long_does_not_keep_the_journal() -> None:
    names = waiting(message(5))
    names.note_journal_end(10_000)
    assert pointer_of(names) == 0
    (shard,) = names.settle_checkpoint(5)
    assert isinstance(decode_entry(shard), ShardEntry)
    names.confirm()
    assert pointer_of(names) == 10_000
    assert names.settle_checkpoint(5) == []


def test_what_an_aborted_rest_would_have_said_is_not_taken_for_said() -> None:
    names = waiting(message(5))
    names.decide_cancel(cancel(6))
    commit(names)
    assert len(names.settle_checkpoint(7)) == 1
    names.nothing_settled()  # it aborted, and a checkpoint alone is committed instead
    names.confirm()
    assert pointer_of(names) is not None


def test_the_debt_of_many_replaces_is_at_most_the_whole_index() -> None:
    names, at = waiting(message(0)), 0
    for _ in range(50):
        for _ in range(200):
            at += 1
            names.decide(message(at), Condition.ALWAYS)
        commit(names)
    assert len(names.settle(Batch())) <= 1


def test_an_aborted_transaction_gives_back_decisions_and_copies_in_their_order() -> None:
    names = waiting(message(5))
    names.decide(message(7), Condition.ALWAYS)
    names.decide(message(8, Y), Condition.ALWAYS)
    names.drop(message(5))
    batch = Batch()
    names.take(batch, *LIMITS)
    names.settle(batch)
    names.put_back(batch)
    assert (len(batch), names.admitted_below) == (0, 6)
    again = commit(names)
    assert [one.offset for one in again.decisions] == [7, 8]
    assert [one.sequence for one in again.dropped] == [5]


# -- the journal -------------------------------------------------------------------------------------------------------


def read(records: Sequence[bytes]) -> NameRecords:
    found = NameRecords()
    for record in records:
        entry = decode_entry(record)
        assert isinstance(entry, (NamesEntry, ShardEntry))
        found.take(entry)
    return found


def test_the_journal_says_what_waits_after_each_transaction() -> None:
    names, journal = no_names(), list[bytes]()
    for offset in range(300):
        name = hash_of(b"k", b"%d" % (offset * 7 % 40))
        names.decide(message(offset, name), Condition.ALWAYS)
        batch = Batch()
        names.take(batch, *LIMITS)
        batch.due += [message(offset, name)] if offset % 3 else []
        journal += names.settle(batch)
        names.confirm(batch)
        found = read(journal)
        assert dict(found.index) == dict(names._index)
        assert found.below == offset + 1


def test_shards_are_written_as_changes_outweigh_them_and_let_the_journal_be_trimmed() -> None:
    names, shards = no_names(), 0
    for offset in range(2_000):
        names.note_journal_end(offset)
        names.decide(message(offset, hash_of(b"k", b"%d" % (offset % 50))), Condition.ALWAYS)
        batch = Batch()
        names.take(batch, *LIMITS)
        shards += sum(isinstance(decode_entry(record), ShardEntry) for record in names.settle(batch))
        names.confirm(batch)
    pointer = names.pointer
    assert pointer is not None
    assert pointer > 1_900
    assert 50 < shards < 2_000 * 4 * 61 // LEAST_DEBT_BYTES + 2


def test_a_shard_is_not_written_while_decisions_wait() -> None:
    names = waiting(*(message(offset, hash_of(b"k", b"%d" % offset)) for offset in range(200)))
    names.note_journal_end(9)
    for offset in range(200, 500):
        names.decide(message(offset, hash_of(b"k", b"%d" % offset)), Condition.ALWAYS)
    batch = Batch()
    names.take(batch, 299, 1 << 40)
    assert not any(isinstance(decode_entry(record), ShardEntry) for record in names.settle(batch))


def test_the_pointer_of_a_shard_stays_before_an_attempt_that_was_open_when_it_was_written() -> None:
    names = waiting(message(5))
    names.note_journal_end(20)
    names.begin_side([message(5)])
    names.note_journal_end(90)
    for offset in range(6, 200):
        names.decide(message(offset, Y), Condition.ALWAYS)
        commit(names)
    assert names.pointer == 20
    names.end_side([message(5)], committed=True)
    for offset in range(200, 400):
        names.decide(message(offset, Y), Condition.ALWAYS)
        commit(names)
    assert names.pointer == 90


def test_the_journal_is_not_needed_any_more_when_all_names_are_gone_and_an_empty_shard_says_so() -> None:
    names = no_names()
    assert pointer_of(names) is None
    names.note_journal_end(40)
    names.decide(message(5), Condition.ALWAYS)
    commit(names)
    assert pointer_of(names) == 40
    assert names.settle_checkpoint(6) == []
    names.confirm()
    commit(names, [message(5)])
    assert names.settle_checkpoint(5) == []  # a record that was decided may be read again
    names.confirm()
    (record,) = names.settle_checkpoint(6)
    assert pointer_of(names) == 40
    names.confirm()
    assert pointer_of(names) is None
    found = read([record])
    assert (dict(found.index), found.below) == ({}, 6)
    names.note_journal_end(70)
    names.decide(message(9), Condition.ALWAYS)
    commit(names)
    assert pointer_of(names) == 70
