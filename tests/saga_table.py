"""The table of docs/diagnosis.md: every scenario of tests/lab/saga.py on a lab of its own.

    python -m tests.saga_table > table.md
    python -m tests.saga_table variants [WORD]    # those of tests/lab/saga_variants.py, of names with that word

Five minutes on two idle cores. Exit code 1 when a cause did not come first.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import tests.conftest  # noqa: F401  # no other machine can be reached, nothing of the person's is touched
from orchestrator.lab.embedded import EmbeddedLab
from tests.lab.saga import SCENARIOS, Scenario
from tests.lab.saga_variants import VARIANTS
from tests.lab.stage import Answer, Stage, Story

HEAD = """\
| item | scenario | first finding | in `orch diff` | answer after |
|---|---|---|---|---|"""
LINE = 100


def row(scenario: Scenario, answer: Answer) -> str:
    first = answer.ids[0] if answer.ids else "none"
    found = f"`{first}`" if first == scenario.first else f"**`{first}`**, not `{scenario.first}`"
    line = next((line for line in answer.diff[:3] if scenario.diff in line), None)
    text = "**not in its first three lines**" if line is None else short(line)
    return f"| {scenario.item} | {scenario.name} | {found} | {text} | {answer.doctor_s:.1f} s |"


def short(line: str) -> str:
    text = re.sub(r"\S*/(q|u)\d+/", "", re.sub(r"\s+", " ", line.strip())).replace("|", "\\|")
    return text if len(text) <= LINE else text[: LINE - 1] + "…"


def variants(stage: Stage, word: str) -> int:
    stage.venv.install("numpy", "2.2.6")
    stage.good = stage.launch(Story())
    stage.place.ok("runs", "mark", "last", "good")
    stage.place.ok("doctor")
    wrong = 0
    for variant in VARIANTS:
        if word not in variant.name:
            continue
        with stage.as_it_was():
            answer = variant.act(stage)
        first = answer.ids[0] if answer.ids else "none"
        wrong += first not in variant.first
        shown = all(any(text in line for line in answer.diff[:3]) for text in variant.diff)
        print(f"| {variant.name} | `{first}` | {'shown' if shown else '**not shown**'} |", flush=True)
    return int(wrong > 0)


def main() -> int:
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="orch-saga-") as folder:
        lab = EmbeddedLab.up(bound=True)
        try:
            stage = Stage(lab, Path(folder), "u1")
            if sys.argv[1:2] == ["variants"]:
                return variants(stage, " ".join(sys.argv[2:]))
            print(HEAD)
            for scenario in SCENARIOS:
                with stage.as_it_was():
                    answer = scenario.act(stage)
                print(row(scenario, answer), flush=True)
                wrong += answer.ids[:1] != [scenario.first]
        finally:
            lab.down()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
