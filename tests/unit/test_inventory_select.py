"""Words of a command line choose targets and hosts, or are refused with what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.inventory.model import Inventory
from orchestrator.inventory.read import read_inventory
from orchestrator.inventory.select import select_host, select_one_target, select_targets


def read(text: str) -> Inventory:
    return read_inventory(text, Path("/project/inventory.yaml"), Path("/home/me"))


ONE = read("hosts: {box: {address: 192.0.2.6, containers: {ct200: {id: 200}}}}")
MANY = read(
    """
hosts:
  north: {address: 192.0.2.1, user: root, containers: {north-a: {id: 200}, north-b: {id: 201}}}
  south: {address: 192.0.2.2, containers: {south-a: {id: 200}}}
  bare: {address: 192.0.2.3, root: /srv}
  twin: {address: 192.0.2.3, port: 2222}
groups:
  front: [north-a, south-a]
  every: [front, bare]
"""
)


def names(inventory: Inventory, *selectors: str) -> list[str]:
    return [target.name for target in select_targets(inventory, selectors)]


def test_no_selector_and_one_target() -> None:
    assert names(ONE) == ["ct200"]
    assert select_one_target(ONE, None).name == "ct200"


def test_by_name_group_id_and_all() -> None:
    assert names(MANY, "south-a") == ["south-a"]
    assert names(MANY, "bare") == ["bare"]
    assert names(MANY, "every") == ["north-a", "south-a", "bare"]
    assert names(MANY, "201") == ["north-b"]
    assert names(MANY, "all") == ["north-a", "north-b", "south-a", "bare"]
    assert names(ONE, "200") == ["ct200"]


def test_each_target_comes_once() -> None:
    assert names(MANY, "south-a", "front", "south-a") == ["south-a", "north-a"]


@pytest.mark.parametrize(
    ("selectors", "what", "more"),
    [
        ([], "the inventory has several targets, and none was named", "north-a (container 200 on root@192.0.2.1)"),
        (["200"], "several hosts have a container 200", "south-a"),
        (["nroth-a"], "there is no target or group `nroth-a`", "did you mean `north-a`?"),
        (["north"], "there is no target or group `north`", "it is a host; its targets: north-a, north-b"),
        (["0201"], "there is no target or group `0201`", ""),
    ],
)
def test_refusals(selectors: list[str], what: str, more: str) -> None:
    with pytest.raises(UsageError) as caught:
        select_targets(MANY, selectors)
    assert caught.value.what == what
    assert more in caught.value.evidence + caught.value.way_out


def test_an_inventory_without_targets() -> None:
    with pytest.raises(UsageError, match="has no target"):
        select_targets(read("hosts: {a: {address: x}}"), [])


def test_one_target_is_one() -> None:
    assert select_one_target(MANY, "201").name == "north-b"
    with pytest.raises(UsageError, match="`front` is 2 targets"):
        select_one_target(MANY, "front")
    with pytest.raises(UsageError, match="none was named") as caught:
        select_one_target(MANY, None)
    assert caught.value.way_out == "name one: -t TARGET", "a bare word is a run to such a command"


def test_a_host_by_name_target_or_address() -> None:
    assert select_host(MANY, "north").name == "north"
    assert select_host(MANY, "south-a").name == "south"
    assert select_host(MANY, "192.0.2.2").name == "south"


def test_no_such_host() -> None:
    with pytest.raises(UsageError, match="several hosts have the address"):
        select_host(MANY, "192.0.2.3")
    with pytest.raises(UsageError, match="there is no host `nort`") as caught:
        select_host(MANY, "nort")
    assert caught.value.way_out == "did you mean `north`?"
