"""What a run records of its compile caches: a real wrapper, a training that writes files as a compiler would."""

import json

import pytest

from orchestrator.agent.far import cache, cache_plan, cache_run, cache_save, cache_seed, lease, live, runs
from orchestrator.agent.far.cache_clear import cache_clear
from orchestrator.ledger.cache_use import parse_cache_use
from tests.waiting import eventually

COMPILES = """
import os, pathlib, sys, time
time.sleep(0.05)  # longer than the tick of the clock that stamps files
for name in {names!r}:
    path = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "fxgraph", "aa", name, "entry")
    if not path.exists():
        path.parent.mkdir(parents=True)
        path.write_text("graph")
"""


@pytest.fixture
def leased(place):
    place.call(lease.lease_acquire, who="me", host="here", pid=1)
    yield place
    place.call(lease.lease_release)


def test_before_after_and_what_they_were_made_from(leased):
    folders = {kind: str(leased.base / "caches" / "live" / kind) for kind in ("inductor", "triton", "extensions")}
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
    environment = dict(zip(names, folders.values(), strict=True))

    def use_of(*graphs):
        answer = leased.start(COMPILES.format(names=graphs), environment=environment)
        assert leased.exit_of(answer)["exit_code"] == 0
        record = json.loads((leased.folder(answer) / "cache.json").read_text())
        assert leased.facts(answer["run_id"])[0]["run"]["cache"] == record
        overview, _ = leased.call(runs.runs_overview, only=answer["run_id"])
        assert overview["runs"][0]["cache_after"] == record["after"]
        return parse_cache_use(record)

    cold = use_of("k1", "k2")
    assert (cold.seeded_from, cold.before.files, cold.after.files) == (None, None, 2)
    assert (cold.after.new_files, cold.after.new_graphs) == (2, 2)
    leased.call(cache_save.cache_save, folders=folders, name="nightly", who="me")
    leased.call(cache_clear, folders=folders, who="me")
    leased.call(cache_seed.cache_seed, folders=folders, name="nightly", who="me")
    warm = use_of("k1", "k2")
    assert (warm.seeded_from, warm.before.files, warm.after.new_files, warm.after.new_graphs) == ("nightly", 2, 0, 0)
    more = use_of("k1", "k3")
    assert (more.before.files, more.after.files, more.after.new_files) == (2, 3, 1)


def test_a_warm_up_is_counted_to_its_end_however_long_that_takes(leased, monkeypatch):
    top = leased.base / "caches" / "live" / "inductor"
    for number in range(40):
        (top / "ab").mkdir(parents=True, exist_ok=True)
        (top / "ab" / str(number)).write_text("x")
    monkeypatch.setattr(cache_run, "AFTER_FILES", 10)
    folder = leased.base / "runs" / "r1"
    folder.mkdir(parents=True)
    for spec, complete in (({}, False), ({"warmup": True}, True)):
        cache_run.write_after(str(folder), {**spec, "environment": {"TORCHINDUCTOR_CACHE_DIR": str(top)}})
        after = json.loads((folder / "cache.json").read_text())["after"]
        assert after["folders"]["TORCHINDUCTOR_CACHE_DIR"]["complete"] is complete


def test_a_live_status_counts_from_the_launch_of_the_newest_run(leased):
    top = str(leased.base / "caches" / "live" / "inductor")
    answer = leased.start(COMPILES.format(names=["k1"]), environment={"TORCHINDUCTOR_CACHE_DIR": top})
    leased.exit_of(answer)
    found = leased.call(cache.cache_stats, folders={"TORCHINDUCTOR_CACHE_DIR": top})
    assert found["folders"]["TORCHINDUCTOR_CACHE_DIR"]["new_files"] == 1


def test_a_run_that_found_all_proves_the_cache_until_something_of_it_changes(leased):
    top = str(leased.base / "caches" / "live" / "inductor")
    release = leased.base / "releases" / "aa"
    release.mkdir(parents=True)
    (leased.base / "current").symlink_to("releases/aa")
    like = {"payload": "dflash", "settings": {}, "targets": 1, "drafters": 1, "model": None}
    folders = {"TORCHINDUCTOR_CACHE_DIR": top}

    def train(graph, **spec):
        source = COMPILES.format(names=[graph])
        answer = leased.start(source, environment=folders, spec={**like, **spec}, release=str(release))
        assert leased.exit_of(answer)["exit_code"] == 0
        eventually(lambda: not live.is_held(str(leased.base)), "the wrapper is gone, and the next may start")
        return answer["run_id"]

    def proof(**changes):
        found = leased.call(cache_plan.cache_proof, folders=folders, like={**like, **changes})["proof"]
        return found and found["run_id"]

    train("k1")
    assert proof() is None  # it compiled
    again = train("k1")
    assert proof() == again and proof(settings={"rows": 8}) is None
    other = train("k2", settings={"rows": 8})
    assert proof() is None, other  # what another run added: it may have been for want of it
    last = train("k1")
    assert proof() == last
    status = leased.base / "runs" / last / "status.json"
    for hits, proven in ((4, last), (0, None)):  # none, and no miss either: torch's caches were off
        status.write_text(json.dumps({"compiled": {"cache_hits": hits, "cache_misses": 0}}))
        assert proof() == proven
    status.unlink()
    (leased.base / "releases" / "bb").mkdir()
    (leased.base / "current").unlink()
    (leased.base / "current").symlink_to("releases/bb")
    assert proof() is None
