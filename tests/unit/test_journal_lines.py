"""Lines of the journal as facts, and in words. Pure."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ledger.journal import parse_journal_entry, unfinished_text
from orchestrator.reports.status import StatusReport, render_status, status_record

LINE = {
    "id": "0123456789ab",
    "at": 1_796_000_000.0,
    "op": "reset",
    "who": "ann",
    "host": "laptop",
    "phase": "begin",
    "detail": {"run_id": "20261130-005320-a1b2", "release": "c" * 64, "pids": [1, 2], "kill": True, "note": None},
}
TEXT = (
    "reset begun by ann@laptop at 2026-11-30 00:53:20 UTC never finished: "
    "run 20261130-005320-a1b2, release cccccccccccc, pids 2, kill yes"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner),
)


def test_what_was_never_finished_is_one_line() -> None:
    entry = parse_journal_entry(LINE)
    assert entry is not None and unfinished_text(entry) == TEXT
    bare = parse_journal_entry({"id": "x", "op": "stop"})
    assert bare is not None and unfinished_text(bare) == "stop begun by somebody at - never finished"


def test_status_shows_it_and_json_holds_it() -> None:
    report = StatusReport(target="ct200", label="ct200", unfinished=parse_journal_entry(LINE))
    assert TEXT in render_status(report)
    assert status_record(report)["unfinished"]["who"] == "ann"
    assert "unfinished" not in render_status(replace(report, unfinished=None))


def test_text_from_afar_stays_one_plain_line() -> None:
    entry = parse_journal_entry({**LINE, "op": "re\x1b[31mset\n", "who": "a\nb", "detail": {"x": "y\x1b]0;t\x07\nz"}})
    assert entry is not None and "\n" not in unfinished_text(entry) and "\x1b" not in unfinished_text(entry)


@given(st.dictionaries(st.sampled_from(sorted(LINE)), JSON) | JSON)
def test_anything_else_is_no_line(value: object) -> None:
    entry = parse_journal_entry(value)
    assert entry is None or unfinished_text(entry)
