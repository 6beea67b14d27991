"""Whether a snapshot's entries will be found again. Pure."""

from __future__ import annotations

import pytest

from orchestrator.ledger.cache_fit import HARD, Maker, judge
from orchestrator.probes.cache_census import Devices

SAME: dict[str, object] = {
    "torch": "2.11.0+cu128",
    "torch_build": "aa",
    "cuda": "12.8",
    "triton": "3.6.0",
    "triton_build": "bb",
    "python": "3.12",
    "gpus": ["NVIDIA H200"],
    "capability": ["sm_90"],
}
SOFT: dict[str, object] = {"code": "c" * 64, "settings": {"lr": 1}, "driver": "580.65"}


def maker(run_id: str = "r1", soft: dict[str, object] | None = None, **changes: object) -> Maker:
    return Maker(run_id, {**SAME, **changes}, SOFT if soft is None else {**SOFT, **soft})


def on(*names: str, complete: bool = True) -> Devices:
    return Devices(dict.fromkeys(names, 3), 0, complete)


def test_the_same_fits() -> None:
    fit = judge([maker()], on("cuda:0"), maker("now"), on("cuda:0"))
    assert (fit.hard, fit.soft, fit.unknown) == ((), (), ())


@pytest.mark.parametrize("field", HARD)
def test_each_hard_field_alone_is_named_with_both_values(field: str) -> None:
    fit = judge([maker()], None, maker("now", **{field: "another"}), None)
    assert [(one.field, one.now) for one in fit.hard] == [(field, "another")] and fit.soft == ()


def test_kernels_of_another_capability_are_of_no_use() -> None:
    fit = judge([maker()], None, maker("now", gpus=["NVIDIA H200"], capability=["sm_80"]), None)
    assert [(one.field, one.kept, one.now) for one in fit.hard] == [("capability", '["sm_90"]', '["sm_80"]')]


def test_soft_fields_do_not_refuse() -> None:
    fit = judge([maker()], None, maker("now", soft={"driver": "590.1", "settings": {"lr": 2}}), None)
    assert fit.hard == () and [one.field for one in fit.soft] == ["settings", "driver"]
    assert (fit.soft[0].kept, fit.soft[0].now) == ('{"lr": 1}', '{"lr": 2}')


def test_of_several_makers_the_best_one_counts() -> None:
    made_by = [maker("r2", torch="2.13.0", cuda="13.0"), maker("r1")]
    assert judge(made_by, None, maker("now"), None).hard == ()
    assert [one.field for one in judge(made_by, None, maker("now", triton="9"), None).hard] == ["triton"]


def test_what_is_not_known_is_said_and_refuses_nothing() -> None:
    fit = judge([maker(gpus=None)], None, maker("now", triton=None), None)
    assert fit.hard == () and fit.unknown == ("triton", "gpus")
    assert judge([], None, maker("now"), None).unknown == HARD == judge([maker()], None, None, None).unknown


def test_devices_that_the_last_good_cache_had_must_be_covered() -> None:
    fit = judge([maker()], on("cuda:5"), maker("now"), on("cuda:5", "cuda:6", "cuda:7"))
    assert [(one.field, one.kept, one.now) for one in fit.hard] == [("devices", "cuda:5", "cuda:5, cuda:6, cuda:7")]
    assert judge([maker()], on("cuda:5", "cuda:6"), maker("now"), on("cuda:5")).hard == ()
    assert judge([maker()], on("cuda:5", complete=False), maker("now"), on("cuda:6")).hard == ()
    assert judge([], on("cuda:5"), None, on("cuda:6")).hard
