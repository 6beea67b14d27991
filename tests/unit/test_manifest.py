"""What may be in a tree: nothing that could be written outside of it."""

import os
import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.far.manifest import (
    DIR,
    FILE,
    LINK,
    Entry,
    ManifestError,
    check_entries,
    check_link,
    check_path,
    json_pack,
    pack,
    tree_hash,
    unique_blobs,
    unpack,
)
from orchestrator.agent.far.scan import is_excluded

SHA = "a" * 64


def file(path, sha256=SHA, mode=0o644, size=1):
    return Entry(path, FILE, mode, size, sha256, "")


def folder(path):
    return Entry(path, DIR, 0o755, 0, "", "")


def link(path, target):
    return Entry(path, LINK, 0o777, 0, "", target)


@given(st.lists(st.sampled_from(["..", ".", "", "a", "b c", "-x", "ä", "\n", "\0", "..."]), min_size=1, max_size=5))
def test_a_name_that_passes_stays_below(parts):
    path = "/".join(parts)
    try:
        check_path(path)
    except ManifestError:
        return
    assert posixpath.normpath("/base/" + path) == "/base/" + path
    assert not set(path) & {"\n", "\0"}


names = st.sampled_from(["a", "b", "c"])
links = st.lists(st.sampled_from(["..", ".", "a", "b", "c"]), min_size=1, max_size=6).map("/".join)


@given(st.dictionaries(st.tuples(names, names), links, max_size=6), st.lists(names, min_size=1, max_size=6))
def test_links_that_pass_cannot_be_followed_out(tmp_path_factory, found, walk):
    """Really made, really followed, in chains."""
    base = tmp_path_factory.mktemp("links")
    inner = base / "x" / "tree"
    inner.mkdir(parents=True)
    for (parent, name), target in found.items():
        (inner / parent).mkdir(exist_ok=True)
        try:
            check_link(f"{parent}/{name}", target)
        except ManifestError:
            continue
        os.symlink(target, inner / parent / name)
    for count in range(1, len(walk) + 1):
        real = os.path.realpath(inner / "/".join(walk[:count]))
        assert real == str(inner) or real.startswith(f"{inner}/")


@pytest.mark.parametrize(
    "entries",
    [
        [file("/etc/passwd")],
        [file("../x")],
        [file("a/../x")],
        [file("a/b")],
        [file("a"), file("a/b")],
        [link("a", "b"), file("a/b")],
        [file("a"), file("a")],
        [file("a", mode=0o4755)],
        [file("a", sha256="xyz")],
        [file("a", sha256="A" * 64)],
        [file("a", size=-1)],
        [link("a", "/etc")],
        [link("a", "..")],
        [folder("d"), link("d/a", "../..")],
        [link("a", "b/../..")],
        [link("a", "")],
        [link("a", "b\0")],
        [folder("d")._replace(sha256=SHA)],
        [Entry("p", "pipe", 0o644, 0, "", "")],
        [file("a\udc80")],
        [file("x" * 300)],
    ],
)
def test_refused(entries):
    with pytest.raises(ManifestError):
        check_entries(entries)


def test_accepted_and_sorted_bytewise():
    entries = [file("d/ä"), file("d/z"), folder("d"), link("d/up", "../a b"), file("a b")]
    assert [entry.path for entry in check_entries(entries)] == ["a b", "d", "d/up", "d/z", "d/ä"]


def test_the_hash_is_of_the_content_and_not_of_the_order():
    entries = [folder("d"), file("d/a"), file("b")]
    assert tree_hash(entries) == tree_hash(entries[::-1]) == tree_hash(unpack(pack(entries)))
    for other in (file("b", mode=0o755), file("b", sha256="b" * 64), file("c")):
        assert tree_hash([*entries[:2], other]) != tree_hash(entries)


def test_the_hash_never_changes_by_accident():
    """Releases on machines are named by it."""
    entries = [folder("d"), file("d/a", size=3), link("l", "d/a")]
    assert tree_hash(entries) == "34414e6868d53c467cf20f648e769fcf8d6b3afced8163b8eebbaa6a54358ac4"


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=7), max_leaves=20))
def test_a_listing_that_is_none_is_refused_in_words(value):
    try:
        unpack(json_pack(value))
    except ManifestError:
        return
    assert value == []


@given(st.binary(max_size=100))
def test_noise_is_refused(data):
    with pytest.raises(ManifestError):
        unpack(data)


def test_the_same_content_is_sent_once():
    entries = check_entries([file("a"), file("b"), file("c", sha256="b" * 64)])
    assert unique_blobs(entries) == [(SHA, 1), ("b" * 64, 1)]


def test_excludes():
    assert is_excluded("x/__pycache__", ["__pycache__"])
    assert is_excluded("x/m.pyc", ["*.pyc"])
    assert is_excluded("data/big", ["data/*"])
    assert not is_excluded("x/data", ["data/*"])
    assert is_excluded("data", ["data/"])
