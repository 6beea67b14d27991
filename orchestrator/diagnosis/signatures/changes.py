"""code-edited, settings-changed, data-changed: what the training was given, beside the last good run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.diagnosis.case import Case, differences
from orchestrator.diagnosis.diff import Difference
from orchestrator.diagnosis.finding import INFO, WARNING, Finding
from orchestrator.diagnosis.signatures.words import difference_text, differences_text, good_text, rate_line
from orchestrator.probes.text import one_line

FALLEN = 0.5
"""Of the last good rate, on the same devices and model: a setting rarely halves it on purpose."""
SHRUNK = 0.75
"""Of the bytes: data that is cleaned loses less, data that is lost by files or halves more."""
OF_THE_RUN = ("settings", "spec", "variables", "secrets", "limits", "container", "machine", "gpus", "model")


def code_edited(case: Case) -> Iterator[Finding]:
    edited = [one for one in case.changed("edited", "expected") if _is_wrong(one)]
    edited += [one for one in case.edited_at_start if one.name not in {known.name for known in edited}]
    if edited:
        lines = [_edit_line(one) for one in edited]
        in_place = any(one.kind == "edited" for one in edited)
        # What `expected: hashes:` does not know may have been deployed just so.
        then = "" if _outside(edited) else ", then deploy it"
        yield Finding(
            "code-edited",
            WARNING,
            f"{edited[0].name} is not as "
            + ("it was deployed" if edited[0].kind == "edited" else "`expected: hashes:` of the payload says")
            + (f", and {len(edited) - 1} more files" if edited[1:] else ""),
            tuple(one_line(line, 200) for line in lines[:8]),
            "a cure was tried on the machine itself and stayed in the code"
            if in_place
            else "a cure stayed in the code, or the inventory has the hash of another version",
            "look at the lines that differ; then deploy the committed code again"
            if in_place and not _outside(edited)
            else f"look at the lines that differ, and put the committed file back{then}",
            case.orch("diff") if _outside(edited) else case.orch("deploy"),
        )
        return
    changed = differences(case.comparison, "code")
    if changed:
        yield Finding(
            "code-edited",
            INFO,
            f"the code is another than at {good_text(case)}",
            (*differences_text(one for one in changed if one.part != "release"), *rate_line(case)),
            "another release was deployed"
            if not any(one is not None and one.was_adopted for one in (case.run, case.good))
            else "one of the two was started by hand, with the code of another folder",
            "see which lines changed; a slower or failing run may be due to them",
            case.orch("diff"),
        )


def _is_wrong(one: Difference) -> bool:
    """It is edited now: one that was put back is well."""
    if one.kind == "expected":
        return not (one.b or "").endswith("(as expected)")
    return one.b is not None


def _outside(edited: list[Difference]) -> bool:
    return any(one.name.startswith("/") for one in edited)


def _edit_line(one: Difference) -> str:
    if one.kind == "expected":
        return f"{one.name}: {one.b or 'not known'}"
    return f"{one.name}: {'deleted' if one.b == 'missing' else 'edited'} since it was deployed"


def settings_changed(case: Case) -> Iterator[Finding]:
    changed = differences(case.comparison, *OF_THE_RUN)
    if not changed:
        return
    here = case.run.tokens_per_s if case.run is not None else None
    there = case.good.tokens_per_s if case.good is not None else None
    halved = bool(here and there and here < FALLEN * there)
    devices = [one for one in changed if one.kind == "gpus" or one.name in ("targets", "drafters", "model path")]
    yield Finding(
        "settings-changed",
        WARNING if halved and not devices and differences(case.comparison, "model") == () else INFO,
        f"it does not run with what {good_text(case)} ran with: {difference_text(changed[0])}"
        + (f", and {len(changed) - 1} more" if changed[1:] else ""),
        (*differences_text(changed), *rate_line(case)),
        "changed on purpose, or by a variable, a limit or a machine that is another",
        "where the rate fell with it, take back one change at a time, and compare over minutes",
        case.orch("diff"),
    )


def data_changed(case: Case) -> Iterator[Finding]:
    changed = differences(case.comparison, "data")
    if changed:
        elsewhere = any(one.name == "data path" for one in case.comparison.differences) if case.comparison else False
        shrunk = not elsewhere and any(_is_shrunk(one) for one in changed)
        yield Finding(
            "data-changed",
            WARNING if shrunk else INFO,
            f"the data is {'much less' if shrunk else 'another'} than at {good_text(case)}",
            (*differences_text(changed), *rate_line(case)),
            "files were lost, or a copy of them did not end"
            if shrunk
            else "samples were added or made anew: steps per epoch, lengths and what has to be read change with them",
            "see which files are there; if it is meant to be so, mark the run good: the next are compared with it"
            if shrunk
            else "compare rates and losses with that in mind; other lengths compile other shapes",
            case.orch("diff"),
        )


def _is_shrunk(one: Difference) -> bool:
    """In the same place; data of another path is another on purpose."""
    if one.b == "not there":
        return True
    then, now = (re.search(r"(\d+) bytes", text or "") for text in (one.a, one.b))
    return bool(then and now and int(now[1]) < SHRUNK * int(then[1]))
