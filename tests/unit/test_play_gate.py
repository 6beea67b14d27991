"""What gets through the gate to publication: nothing worse than what is published, nothing that is not known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.errors import NotAsWantedError
from orchestrator.inventory.read import read_inventory
from orchestrator.ledger.publications import Shelved, shelved
from orchestrator.playbook.doing import At
from orchestrator.playbook.schema import GateOptions
from orchestrator.playbook.steps_gate import gate, judge, judged_on, let_through
from orchestrator.playbook.variables import LET_THROUGH
from orchestrator.probes.values import as_float


def there(tau: float | None) -> Shelved:
    result: Mapping[str, object] = {} if tau is None else {"acceptance_length": tau, "lossless": True}
    record = {"tree_hash": "a" * 64, "pushed_at": 1.0, "provenance": {"run_id": "r1", "result": result}}
    return shelved("/srv", [record], current="a" * 64, previous=None)


NOTHING = shelved("/srv", [], current=None, previous=None)


@pytest.mark.parametrize(
    ("options", "tau", "lossless", "published", "reasons"),
    [
        ({}, 3.2, True, NOTHING, []),
        ({}, 3.2, True, there(3.2), []),
        ({}, 3.19, True, there(3.2), ["tau 3.19 is worse than 3.2 of the published one"]),
        ({"tau_drop": 0.05}, 3.15, True, there(3.2), []),
        (
            {"tau_drop": 0.05},
            3.149,
            True,
            there(3.2),
            ["worse than 3.2 of the published one, 0.05 less is let through"],
        ),
        ({"tau_at_least": 3.0}, 2.9, True, NOTHING, ["tau 2.9, at least 3 wanted"]),
        ({}, 3.3, False, there(3.2), ["its decoding was not"]),
        ({}, 3.3, None, there(3.2), ["whether its decoding was lossless is not known"]),
        ({"lossless": False}, 3.3, None, there(3.2), []),
        ({}, None, True, NOTHING, ["its tau is not known"]),
        ({}, 3.3, True, there(None), ["the tau of the published one is not known"]),
        ({"tau_at_least": 3.0}, 3.3, True, there(None), []),
        ({}, 3.3, True, there(math.nan), ["the tau of the published one is not known"]),
        (
            {"tau_at_least": 3.0},
            2.0,
            False,
            there(3.2),
            ["its decoding was not", "at least 3 wanted", "worse than 3.2"],
        ),
    ],
)
def test_the_gate(
    options: dict[str, float], tau: float | None, lossless: bool | None, published: Shelved, reasons: list[str]
) -> None:
    found = judge(GateOptions.model_validate(options), tau, lossless, published)
    assert len(found) == len(reasons), found
    assert [words for words, said in zip(reasons, found, strict=True) if words not in said] == []


def test_taus_of_another_kind_can_be_told_apart() -> None:
    assert judged_on({"prompts": 24, "block_size": 8}) == "24 prompts, block size 8"
    assert judged_on({"acceptance_length": 3.0}) is None


PASSED = {
    LET_THROUGH: {"/srv": {"run": "r2", "instead_of": "a" * 64}, "/new": {"run": "r2", "instead_of": None}},
    "checkpoint": "/root/orch/runs/r2/checkpoints/step-400",
}


def test_what_was_judged_may_replace_what_it_was_compared_with() -> None:
    assert let_through(PASSED, "r2", "/srv") == "a" * 64
    assert let_through(PASSED, "r2", "/new") is None
    assert let_through(PASSED, "r2:400", "/srv") == "a" * 64


@pytest.mark.parametrize(
    ("known", "what", "where"),
    [
        (PASSED, "r1", "/srv"),
        (PASSED, "last", "/srv"),
        (PASSED, "r2:200", "/srv"),
        (PASSED, "r2", "/elsewhere"),
        ({"evaluated_run": "r2", "tau": 9.0}, "r2", "/srv"),
        ({LET_THROUGH: {"/srv": {"run": None, "instead_of": None}}}, "", "/srv"),
    ],
    ids=["another run", "whichever is last", "another checkpoint", "another place", "no gate", "no run"],
)
def test_nothing_else_is_published(known: Mapping[str, object], what: str, where: str) -> None:
    with pytest.raises(NotAsWantedError, match="no `gate` has let it through"):
        let_through(known, what, where)


async def test_without_an_evaluated_run_no_run_is_named() -> None:
    inventory = read_inventory("hosts:\n  box: {transport: local, root: /nowhere}\n", Path("/x.yaml"), Path("/home/me"))
    nothing = At(
        target=inventory.targets["box"], inventory=inventory, known={}, noted={}, note=lambda _: None, begun_runs=(),
        again=False, say=lambda _: None, on_status=lambda _: None, play_id="p",
    )  # fmt: skip
    with pytest.raises(NotAsWantedError) as caught:
        await gate(nothing, GateOptions(to="/nowhere/published"))
    assert "no run was evaluated" in str(caught.value) and "--from evaluate" in caught.value.way_out


def test_a_number_of_hundreds_of_digits_is_not_known() -> None:
    assert as_float(10**400) is None and as_float(10**20) == 1e20
