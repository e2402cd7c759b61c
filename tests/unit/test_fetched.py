"""What a fetch remembers of bytes on disk: spans, and the journal after every kind of end."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostkit import fetched, intent
from hostkit.fetched import Journal, Known
from hostkit.spans import Span, Spans

SIZE = 60
spans = st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(lambda pair: (min(pair), max(pair))))


def bytes_of(found: Spans) -> set[int]:
    return {at for start, end in found for at in range(start, end)}


@given(spans, spans)
def test_spans_hold_the_bytes_that_were_added_and_not_removed(added: list[Span], removed: list[Span]) -> None:
    found, wanted = Spans(added), {at for start, end in added for at in range(start, end)}
    for start, end in removed:
        found.remove(start, end)
        wanted -= set(range(start, end))
    assert bytes_of(found) == wanted
    assert found.total == len(wanted)
    assert {at for start, end in found.missing(SIZE) for at in range(start, end)} == set(range(SIZE)) - wanted
    assert found.prefix == next(at for at in range(SIZE + 1) if at not in wanted)
    flat = [edge for span in found for edge in span]
    assert flat == sorted(set(flat)), "in order, and none touches another"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Two spans that a sync has covered, one that none has, and a file that was found right."""
    written = Journal(tmp_path / "journal", {"a b": Known("d1"), "c": Known("d2")})
    written.span("a b", 0, 10)
    written.span("c", 5, 9)
    position = written.position()
    written.span("a b", 10, 20)
    written.synced(position)
    written.checked("c", 123, 7)
    written.close()
    return tmp_path / "journal"


def another_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intent, "boot_id", lambda: "another")


def test_a_process_that_died_loses_nothing(journal: Path) -> None:
    known = fetched.read(journal)
    assert list(known["a b"].spans) == [(0, 20)]
    assert (known["a b"].digest, known["c"].checked) == ("d1", (123, 7))


def test_after_a_power_cut_only_what_was_flushed_counts(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    another_boot(monkeypatch)
    known = fetched.read(journal)
    assert list(known["a b"].spans) == [(0, 10)]
    assert list(known["c"].spans) == [(5, 9)]
    assert known["c"].checked is None


def test_a_journal_cut_off_anywhere_counts_no_byte_too_many(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = journal.read_bytes()
    for boots in (1, 2):
        whole = fetched.read(journal)
        for length in range(len(text)):
            cut = journal.with_name("cut")
            cut.write_bytes(text[:length])
            for name, known in fetched.read(cut).items():
                assert bytes_of(known.spans) <= bytes_of(whole[name].spans), (boots, length)
        another_boot(monkeypatch)


@pytest.mark.parametrize("text", ["", "boot", "\0" * 100, "boot x\nspan 1 2\nsynced\nsynced -1\n"])
def test_a_journal_that_nobody_can_read_counts_for_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "journal").write_text(text)
    assert fetched.read(tmp_path / "journal") == {}


def test_a_file_that_was_dropped_begins_anew(journal: Path) -> None:
    written = Journal(journal, fetched.read(journal))
    written.dropped("a b", "d1")
    written.span("a b", 3, 4)
    written.close()
    assert list(fetched.read(journal)["a b"].spans) == [(3, 4)]
