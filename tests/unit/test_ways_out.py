"""Ways out that can be typed as they stand, and names as a person reads them. Pure."""

from __future__ import annotations

import pytest

from orchestrator.agent.errors import AgentOpError
from orchestrator.errors import UsageError
from orchestrator.ledger.publications import Shelved, choose_publication
from orchestrator.operations.cache_move import this_machine


@pytest.mark.parametrize(("wanted", "way_out"), [(None, "orch publish --to '/srv/a b'"), ("x", "'/srv/a b' --list")])
def test_a_way_out_of_publishing_names_the_place(wanted: str | None, way_out: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_publication(Shelved("/srv/a b", None, None, ()), wanted)
    assert way_out in caught.value.way_out and "WHERE" not in caught.value.way_out


def test_this_machine_is_named_once() -> None:
    assert this_machine("/data").label == "this machine"


@pytest.mark.parametrize("kind", ["io", "disk_full"])
def test_a_disk_that_takes_nothing_has_a_way_out(kind: str) -> None:
    """The agent itself says only where and what, for it does not know what orch can do."""
    assert AgentOpError(kind, "/srv/orch: Read-only file system").way_out
