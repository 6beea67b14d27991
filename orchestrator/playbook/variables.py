"""`${name}` in a playbook: what is known before it runs, and what only the play itself finds out.

Rule: pure. A value that is nothing but `${name}` takes the variable's own type; within text it becomes text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

BUILT_IN: dict[str, str] = {
    "play_id": "of this play",
    "playbook": "the file's name without its ending",
    "target": "the name of the playbook's target",
    "date": "when the play began, UTC: 20261130",
    "time": "when the play began, UTC: 020000",
    "release": "tree hash of what `deploy` made live",
    "run_id": "of the run that `launch` started",
    "step": "the last step of that run that is known",
    "throughput": "tokens a second that `expect` saw",
    "checkpoint": "path on the target of what `evaluate` judged",
    "evaluated_run": "the run whose result `evaluate` read: the launched one, or the one that evaluated it",
    "tau": "the acceptance length that `evaluate` found",
    "judged_on": "how many prompts and which block size tau is of",
    "lossless": "whether decoding gave the target's own tokens: true or false",
    "published_tau": "tau of what was published when `gate` looked",
    "published": "what `publish` made current",
    "outcome": "done or failed",
    "failed_step": "name of the step that failed",
    "why": "what happened to it, in a sentence",
    "summary": "the play in a few lines: outcome, why, run, tau, what to do next",
}
ALWAYS_KNOWN = ("play_id", "playbook", "target", "date", "time")
SETS: dict[str, tuple[str, ...]] = {
    "deploy": ("release",),
    "launch": ("run_id",),
    "expect": ("throughput", "step"),
    "wait": ("step",),
    "evaluate": ("checkpoint", "tau", "lossless", "evaluated_run", "judged_on"),
    "gate": ("published_tau",),
    "publish": ("published",),
}
"""Operation -> what is known once it was done."""
LET_THROUGH = "gate-let-through"
"""What `gate` tells `publish`; no name that a playbook can write. Place -> run, and what it may replace there."""
AT_THE_END = ("outcome", "failed_step", "why", "summary")
"""Known in `on_failure` and `always` only."""
UNKNOWN = "-"

REFERENCE = re.compile(r"\$(?P<escaped>\$)?\{(?P<name>[^{}]*)\}")


def references(value: object) -> Iterator[str]:
    """Names in all text of a value, however deep."""
    if isinstance(value, str):
        yield from (_name(found) for found in REFERENCE.finditer(value) if not found["escaped"])
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references(item)


def substitute(value: object, known: Mapping[str, object]) -> object:
    """Before it runs: every `${name}` that is known is replaced, others stay."""
    if isinstance(value, Mapping):
        return {key: substitute(item, known) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [substitute(item, known) for item in value]
    if not isinstance(value, str):
        return value
    name = _whole(value)
    if name in known:
        return known[name]
    return REFERENCE.sub(
        lambda found: text_of(known[_name(found)]) if not found["escaped"] and _name(found) in known else found[0],
        value,
    )


def fill_in(value: object, known: Mapping[str, object], *, typed: bool = False) -> object:
    """While it runs: every `${name}` is replaced, by a dash where it is not known; `$${` becomes `${`. Only payload
    settings keep the type of what they are given; everywhere else text is wanted."""
    if isinstance(value, Mapping):
        return {key: fill_in(item, known, typed=typed or key == "settings") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill_in(item, known, typed=typed) for item in value]
    if not isinstance(value, str):
        return value
    name = _whole(value)
    if typed and known.get(name) is not None:
        return known[name]
    return REFERENCE.sub(lambda found: found[0][1:] if found["escaped"] else text_of(known.get(_name(found))), value)


def _whole(text: str) -> str:
    """The name, when the text is nothing but `${name}`; else nothing."""
    found = REFERENCE.fullmatch(text)
    return _name(found) if found and not found["escaped"] else ""


def _name(found: re.Match[str]) -> str:
    return found["name"].strip()


def text_of(value: object) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
