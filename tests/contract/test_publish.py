"""Publishing into a folder: what is current is whole at every moment, and the old one stays whatever fails."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

from orchestrator.errors import NotAsWantedError, PreflightError, TransferError, UsageError
from orchestrator.inventory.loader import load_inventory
from orchestrator.operations.publish import publish, published, switch_published
from orchestrator.operations.shelf import open_shelf
from orchestrator.operations.where import parse_where
from tests.dying import count_changes, die_at
from tests.publishing import Trained, files
from tests.waiting import eventually


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    trained = Trained(tmp_path_factory.mktemp("trained"))
    trained.runs = [trained.train(seed=seed, tau=3.0 + seed) for seed in (1, 2)]
    return trained


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def place(trained, folder):
    return parse_where(str(folder), load_inventory(trained.inventory))


def put(trained, folder, wanted=None, **options):
    return asyncio.run(publish(trained.target, wanted, place(trained, folder), **options))


def test_the_last_runs_drafter_becomes_current_and_the_command_says_so(trained, tmp_path):
    where = tmp_path / "drafter"
    done = trained.orch("publish", "--to", str(where))
    assert done.returncode == 0, done.stderr
    assert files(where / "current") == trained.export(trained.runs[1])
    assert trained.runs[1] in done.stdout and "is current" in done.stdout
    listed = json.loads(trained.orch("publish", "--to", str(where), "--list", "--json").stdout)
    assert listed["current"] == os.readlink(where / "current") == listed["publications"][0]["tree_hash"]
    assert listed["publications"][0]["acceptance_length"] == 5.0 and listed["publications"][0]["lossless"] is True
    assert not list((tmp_path / "cache" / "orch" / "publish").rglob("*.safetensors"))  # nothing is left on the way
    again = trained.orch("publish", "--to", str(where))
    assert again.returncode == 0 and "sent 0 B" in again.stdout and "it was current before" in again.stdout


def test_a_checkpoint_the_one_before_and_the_last_n(trained, tmp_path):
    where = tmp_path / "drafter"
    first, second = trained.runs
    put(trained, where, first)
    report = put(trained, where, f"{second}:1")
    assert report.replaced.run_id == first and report.step == 1
    assert (where / "current" / "_SUCCESS").exists() and report.result == {"step": 1, "acceptance": 2.5}
    put(trained, where, second)
    back = asyncio.run(switch_published(place(trained, where), None))
    assert (back.current.run_id, back.current.step) == (second, 1)
    named = asyncio.run(switch_published(place(trained, where), first))
    assert named.current.run_id == first and files(where / "current") == trained.export(first)
    with pytest.raises(UsageError, match="0 publications"):
        asyncio.run(switch_published(place(trained, where), "f" * 12))
    report = put(trained, where, f"{first}:2", keep=1)
    there = asyncio.run(published(place(trained, where)))
    # The current one and the one before stay, whatever their age.
    assert [one.step for one in there.publications] == [2, None] and len(report.removed) == 2
    left = {path.name for path in where.iterdir() if path.is_dir() and len(path.name) == 64}
    assert left == {there.current, there.previous, "current", "previous"} - {"current", "previous"}


def test_nothing_that_is_not_whole_is_published(trained, tmp_path):
    where = tmp_path / "drafter"
    put(trained, where, trained.runs[0])
    live = trained.train(end=False, seed=4, wait=tmp_path / "go")
    with pytest.raises(PreflightError, match="is still running"):
        put(trained, where, live)
    (tmp_path / "go").touch()
    eventually((trained.folder / "root" / "orch" / "runs" / live / "exit.json").exists, "the run ends")
    failed = trained.train(seed=5, code=1)
    with pytest.raises(PreflightError, match="ended with exit code 1") as caught:
        put(trained, where, failed)
    assert f"orch publish {failed}:2" in caught.value.way_out
    weights = trained.folder / "root" / "orch" / "runs" / trained.runs[1] / "export" / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-3])
    try:
        with pytest.raises(PreflightError, match="is not whole") as caught:
            put(trained, where, trained.runs[1])
    finally:
        weights.write_bytes(data)
    assert f"model.safetensors: {len(data) - 3} bytes, its header says {len(data)}" in caught.value.evidence
    assert files(where / "current") == trained.export(trained.runs[0])
    for wanted in (f"{failed}:7", "20200101-000000-none", f"{failed}:x"):
        with pytest.raises((UsageError, PreflightError)):
            put(trained, where, wanted)
    assert put(trained, where, f"{failed}:2").step == 2  # its checkpoint is whole


def test_killed_at_each_change_the_current_one_is_whole_and_again_continues(trained, tmp_path):
    old, new = trained.runs[0], trained.runs[1]

    def work():
        put(trained, tmp_path / "drafter", new)

    def is_whole():
        assert files(tmp_path / "drafter" / "current") in (trained.export(old), trained.export(new))
        return True

    put(trained, tmp_path / "drafter", old)
    put(trained, tmp_path / "other", old)
    changes = count_changes(lambda: put(trained, tmp_path / "other", new))
    assert changes > 5
    died = [step for step in range(0, changes, 5) if die_at(step, work) and is_whole()]
    assert len(died) > 1  # and then a try got through, because it went on from what had arrived
    assert files(tmp_path / "drafter" / "current") == trained.export(new)


def test_the_switch_killed_at_each_change_names_one_of_the_two(trained, tmp_path):
    from orchestrator.agent.far.channel import Channel
    from orchestrator.agent.far.publications import publication_switch

    where = tmp_path / "drafter"
    put(trained, where, trained.runs[0])
    old = os.readlink(where / "current")
    new = put(trained, where, trained.runs[1]).tree_hash

    def work():
        about = {"store": str(where), "lock_wait_s": 5}
        publication_switch({**about, "tree_hash": new}, b"", Channel(1, lambda header, body: None))

    seen = set()
    step = 0
    while True:
        asyncio.run(switch_published(place(trained, where), old))
        died = die_at(step, work)
        seen.add(os.readlink(where / "current"))
        assert (where / "current" / "model.safetensors").is_file()
        work()
        assert os.readlink(where / "current") == new
        if not died:
            break
        step += 1
    assert seen == {old, new} and step >= 3


def test_what_was_damaged_over_there_never_becomes_current(trained, tmp_path):
    where = tmp_path / "drafter"
    put(trained, where, trained.runs[0])
    put(trained, where, trained.runs[1])
    victim = where / os.readlink(where / "previous") / "model.safetensors"
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    with pytest.raises(NotAsWantedError) as caught:
        asyncio.run(switch_published(place(trained, where), None))
    assert "model.safetensors" in caught.value.evidence
    assert files(where / "current") == trained.export(trained.runs[1])


def test_a_folder_that_is_somebody_elses_is_left_alone(trained, tmp_path):
    (tmp_path / "drafter" / "current").mkdir(parents=True)
    with pytest.raises(PreflightError, match="not a link that orch made"):
        put(trained, tmp_path / "drafter", trained.runs[0])
    assert [path.name for path in (tmp_path / "drafter").iterdir()] == ["current"]


FULL = """
import asyncio, pathlib, subprocess, sys
from orchestrator.errors import TransferError
from orchestrator.inventory.loader import load_inventory
from orchestrator.operations.publish import publish
from orchestrator.operations.where import parse_where
small, inventory, first, second = sys.argv[1:]
loaded = load_inventory(pathlib.Path(inventory))
where = parse_where(small + "/drafter", loaded)
put = lambda run: asyncio.run(publish(loaded.targets["box"], run, where))
put(first)
with open(small + "/filler", "wb", buffering=0) as stream:
    try:
        while stream.write(bytes(4096)): pass
    except OSError: pass
try:
    put(second)
except TransferError as error:
    print(error.exit_code, error.what, pathlib.Path(small, "drafter/current/config.json").read_text())
pathlib.Path(small, "filler").unlink()
put(second)
print(pathlib.Path(small, "drafter/current/config.json").read_text())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to mount a small file system of its own")
def test_a_full_disk_leaves_the_published_one_and_again_works_once_there_is_room(trained, tmp_path):
    mount = 'mount -t tmpfs -o size=2200k none "$1" && exec "$2" -c "$3" "$1" "$4" "$5" "$6"'
    small = tmp_path / "small"
    small.mkdir()
    argv = ["unshare", "-m", "sh", "-c", mount, "sh", small, sys.executable, FULL, trained.inventory, *trained.runs[:2]]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, env=dict(os.environ, PYTHONPATH=os.getcwd())
    )
    if "permission denied" in done.stderr.lower() or "not permitted" in done.stderr.lower():
        pytest.skip("mounting is not allowed here")
    assert done.returncode == 0, done.stderr
    failed, after = done.stdout.splitlines()
    assert failed.startswith(f"{TransferError.exit_code} ") and '{"seed": 1}' in failed and "space" in failed
    assert after == '{"seed": 2}'


@pytest.mark.parametrize(
    "words", ["nowhere:/x", "box:relative", "box:/a/../b", "s3://B_d/x", "s3://bucket/../x", "ftp://x/y", "/"]
)
def test_words_that_name_no_place(trained, words):
    with pytest.raises(UsageError) as caught:
        parse_where(words, load_inventory(trained.inventory))
    assert caught.value.way_out


def test_words_that_name_a_place(trained):
    inventory = load_inventory(trained.inventory)
    assert parse_where("box:/srv/x/", inventory).text == "box:/srv/x"
    store = parse_where("s3://some-bucket/a//b/", inventory, profile="nightly")
    assert (store.bucket, store.prefix, store.profile) == ("some-bucket", "a/b", "nightly")
    assert parse_where("rel", inventory).folder == os.path.abspath("rel")


def test_what_was_published_meanwhile_is_not_replaced(trained, tmp_path):
    where = tmp_path / "drafter"
    first, second = trained.runs
    old = put(trained, where, first, only_instead_of=[None]).tree_hash
    new = put(trained, where, second, only_instead_of=[old]).tree_hash
    assert put(trained, where, second, only_instead_of=[old]).tree_hash == new  # the same once more
    for expected in (None, old):
        with pytest.raises(NotAsWantedError, match="another one was published meanwhile"):
            put(trained, where, f"{first}:1", only_instead_of=[expected])
        assert os.readlink(where / "current") == new

    async def between() -> None:
        """It comes after the look and before the switch."""
        async with open_shelf(place(trained, where), None) as shelf:
            await shelf.switch(old, [old])

    with pytest.raises(NotAsWantedError, match="another one was published meanwhile"):
        asyncio.run(between())
    assert os.readlink(where / "current") == new
