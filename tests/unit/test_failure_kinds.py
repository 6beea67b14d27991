"""Each kind of failure has a way out, in the documentation too."""

from pathlib import Path

from orchestrator.probes.failures.kinds import KINDS
from orchestrator.probes.failures.search import SIGNATURES

PAGE = Path(__file__).parent.parent.parent / "docs" / "failures.md"


def test_the_page_tells_each_kind_as_the_reading_does():
    rows = {f"| {kind.name} | {kind.title} | {kind.role} | {kind.remedy} |" for kind in KINDS.values()}
    told = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert set(told[1:]) == rows
    assert all(kind.remedy for kind in KINDS.values())


def test_each_signature_is_of_a_kind():
    assert {sought.kind for sought in SIGNATURES} <= set(KINDS)
