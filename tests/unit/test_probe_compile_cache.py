"""The agent's cache_stats as facts. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.probes.compile_cache import parse_cache_stats

FOLDER = {"exists": True, "bytes": 7, "files": 2, "entries": 3, "newest_mtime": 9.5, "complete": True, "unreadable": 0}
MISSING = {"exists": False, "bytes": None, "files": None, "entries": None, "newest_mtime": None, "complete": True}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.dictionaries(st.text(), x) | st.lists(x)
)


def test_folders_add_up_and_unknown_stays_unknown() -> None:
    read = parse_cache_stats({"folders": {"a": {**FOLDER, "path": "/a"}, "b": {**MISSING, "path": "/b"}}})
    assert read is not None and (read.bytes, read.entries, read.newest_at, read.complete) == (7, 3, 9.5, True)
    gone = parse_cache_stats({"folders": {"b": {**MISSING, "path": "/b"}}})
    assert gone is not None and (gone.bytes, gone.entries, gone.newest_at) == (None, None, None)


def test_the_same_folder_twice_and_names_that_begin_alike() -> None:
    folders = {
        name: {**FOLDER, "path": path} for name, path in [("a", "/x"), ("b", "/x/"), ("c", "/x2"), ("d", "/x/y")]
    }
    read = parse_cache_stats({"folders": folders})
    assert read is not None and read.bytes == 14


def test_stopped_counting_is_said() -> None:
    for change in ({"complete": False}, {"unreadable": 1}):
        read = parse_cache_stats({"folders": {"a": {**FOLDER, "path": "/a", **change}}})
        assert read is not None and not read.complete


@given(st.fixed_dictionaries({"folders": st.dictionaries(st.text(), JSON)}) | JSON)
def test_anything_else_is_none_or_some_folders(value: object) -> None:
    read = parse_cache_stats(value)
    assert read is None or read.folders
