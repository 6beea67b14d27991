"""Building environments with the real uv, offline; agents that die at each step; what may be removed and what not."""

import json
import os
import random
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from orchestrator.agent.far import env_build, env_store, env_switch, lease, live, process, release_store
from orchestrator.agent.far.errors import OpError
from orchestrator.agent.far.scan import scan
from tests.dying import count_changes, die_at
from tests.tiny_wheels import lock_line, make_wheel
from tests.uv_wheel import uv_wheel
from tests.waiting import eventually

OLD, NEW = "a" * 32, "b" * 32
PYTHON = os.path.realpath(sys.executable)


@pytest.fixture(scope="module")
def uv(tmp_path_factory):
    """uv's wheel, its program not compressed: unpacking is most of a tiny build's time."""
    with zipfile.ZipFile(uv_wheel()) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("/scripts/uv")]
        path = tmp_path_factory.mktemp("uv") / "uv.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as quick:
            quick.writestr(name, wheel.read(name))
    return path


@pytest.fixture
def leased(place, uv):
    place.uv = uv
    place.call(lease.lease_acquire, who="me", host="here", pid=1)
    yield place
    place.call(lease.lease_release)


def send(place, tree, *wheels):
    """As the tree sync leaves it there."""
    folder = place.base / "wheels" / tree
    (folder / "uv").mkdir(parents=True)
    (folder / "wheels").mkdir()
    (folder / "uv" / "uv.whl").symlink_to(place.uv)
    for wheel in wheels:
        (folder / "wheels" / wheel.name).write_bytes(wheel.read_bytes())
    (folder / "lock.txt").write_text("".join(map(lock_line, wheels)))
    Path(f"{folder}.json").write_text("{}")


def build(place, name, tree, **changes):
    params = {"python": PYTHON, "requirements": {"alpha": tree}, "about": {"purpose": "train"}, "limit_s": 60}
    return place.call(env_build.env_build, id=name, tree=tree, **{**params, **changes})


def use(place, name, wanted=None):
    return place.call(env_switch.env_use, purpose="train", id=name, wanted=wanted)


def says(place, name):
    """What its Python imports."""
    python = place.base / "envs" / name / "bin" / "python"
    argv = [str(python), "-c", "import alpha; print(alpha.VERSION)"]
    return subprocess.run(argv, stdout=subprocess.PIPE, check=True, env={}).stdout.decode().strip()


@pytest.fixture
def built(leased, tmp_path):
    """OLD is there and current; the wheels for NEW have arrived."""
    for version in ("1.0", "2.0"):
        send(leased, version, make_wheel(tmp_path / version, "alpha", version))
    build(leased, OLD, "1.0")
    use(leased, OLD)
    return leased


def test_an_environment_is_what_the_lock_says(built):
    complete = json.loads((built.base / "envs" / OLD / "complete.json").read_text())
    assert (complete["requirements"], complete["wheels"], complete["purpose"]) == ({"alpha": "1.0"}, "1.0", "train")
    assert [event["phase"] for event in built.events if "phase" in event] == ["unpack", "make", "install", "sync"]
    assert list((built.base / "envs" / OLD).rglob("alpha/__pycache__/*.pyc")), "before anything was imported"
    assert says(built, OLD) == "1.0"
    assert sorted(path.name for path in (built.base / "envs").iterdir()) == [OLD, "current.json"]
    assert build(built, OLD, "1.0")["already_there"]


def test_a_build_cut_short_anywhere_leaves_the_old_one_and_the_next_completes(built):
    changes = count_changes(lambda: build(built, NEW, "2.0"))
    afresh(built)
    # Each costs a run of uv or two: the last ones, where it becomes an environment, and some of the others.
    seed = random.SystemRandom().randrange(1 << 32)
    chosen = {*range(changes - 3, changes), *random.Random(seed).sample(range(changes - 3), 3)}
    for step in sorted(chosen):
        died = die_at(step, lambda: build(built, NEW, "2.0"))
        assert died, f"step {step} of {changes}, seed {seed}"
        assert env_store.read_current(str(built.base))["train"]["id"] == OLD and says(built, OLD) == "1.0"
        assert build(built, NEW, "2.0")["complete"]["id"] == NEW, f"step {step} of {changes}, seed {seed}"
        assert says(built, NEW) == "2.0", f"step {step} of {changes}, seed {seed}"
        assert sorted(path.name for path in (built.base / "envs").iterdir()) == [OLD, NEW, "current.json"]
        afresh(built)


def afresh(place):
    """Without NEW, and with its wheels: those go with it."""
    place.call(env_switch.env_remove, ids=[NEW])
    send(place, "2.0", make_wheel(place.base / "again", "alpha", "2.0"))


def test_what_a_killed_agent_left_running_is_ended_first(built):
    store = str(built.base / "envs")
    argv = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"]
    left = subprocess.Popen(argv, env={env_build.MARK: store}, stdout=subprocess.PIPE)
    beside = subprocess.Popen(argv, env={env_build.MARK: store + "-of-another"}, stdout=subprocess.PIPE)
    try:
        assert left.stdout.readline() == beside.stdout.readline() == b"here\n"
        build(built, NEW, "2.0")
        assert left.wait(10) == -signal.SIGKILL
        assert beside.poll() is None
        assert process.processes_with(env_build.MARK, store) == []
    finally:
        for child in (left, beside):
            child.kill()
            child.wait()
            child.stdout.close()


def test_a_lock_with_the_wrong_hash_builds_nothing(built):
    lock = built.base / "wheels" / "2.0" / "lock.txt"
    lock.write_text(lock.read_text().replace("sha256:", "sha256:0000")[:-5] + "\n")
    with pytest.raises(OpError, match="uv pip sync") as caught:
        build(built, NEW, "2.0")
    assert caught.value.kind == "build_failed" and "alpha" in caught.value.evidence
    assert sorted(path.name for path in (built.base / "envs").iterdir()) == [OLD, "current.json"]


def test_what_was_installed_is_compared_with_the_lock(built):
    with pytest.raises(OpError, match="not what the lock says") as caught:
        build(built, NEW, "2.0", requirements={"alpha": "2.0", "gamma": "1"})
    assert caught.value.evidence == "gamma 1"
    assert not (built.base / "envs" / NEW).exists()


@pytest.mark.parametrize("damage", ["not a zip", "a wheel without the program", "none"])
def test_a_tree_without_uv_is_refused(built, damage):
    (wheel,) = (built.base / "wheels" / "2.0" / "uv").iterdir()
    wheel.unlink()
    if damage == "not a zip":
        wheel.write_text("nothing")
    elif damage == "a wheel without the program":
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("uv/__init__.py", "")
    with pytest.raises(OpError) as caught:
        build(built, NEW, "2.0")
    assert caught.value.kind == "missing" and not (built.base / "envs" / NEW).exists()


def test_one_whose_record_cannot_be_read_is_left_alone(built):
    (built.base / "envs" / OLD / "complete.json").write_text("{")
    build(built, NEW, "2.0")
    assert says(built, OLD) == "1.0"
    with pytest.raises(OpError, match="move it aside") as caught:
        build(built, OLD, "1.0")
    assert caught.value.kind == "conflict" and says(built, OLD) == "1.0"


def test_use_goes_there_and_back(built):
    build(built, NEW, "2.0")
    used = use(built, NEW, wanted=NEW)
    assert (used["before"], used["previous"], used["instead_of"]) == (OLD, OLD, None)
    back = use(built, None, wanted=NEW)
    assert (back["id"], back["previous"], back["instead_of"]) == (OLD, NEW, NEW)
    again = use(built, OLD, wanted=NEW)
    assert (again["id"], again["previous"]) == (OLD, NEW), "the same once more does not forget the other"
    with pytest.raises(OpError) as caught:
        use(built, "c" * 32)
    assert caught.value.kind == "missing"
    with pytest.raises(OpError, match="before this one"):
        built.call(env_switch.env_use, purpose="datagen", id=None)


def test_what_is_used_cannot_be_removed(built):
    build(built, NEW, "2.0")
    use(built, NEW)
    run = "20261129-120000-0001"
    (built.base / "runs" / run).mkdir(parents=True)
    (built.base / "runs" / run / "run.json").write_text(json.dumps({"python_environment": {"id": OLD}}))
    handle = live.acquire(str(built.base))
    try:
        live.write_content(handle, {"run_id": run})
        for name in (OLD, NEW):
            with pytest.raises(OpError) as caught:
                built.call(env_switch.env_remove, ids=[name])
            assert caught.value.kind == "busy"
        (built.base / "runs" / run / "run.json").unlink()
        with pytest.raises(OpError, match="does not say which environment"):
            built.call(env_switch.env_remove, ids=None)
    finally:
        os.close(handle)
    assert built.call(env_switch.env_remove, ids=None) == {"removed": []}, "the one before is kept"
    assert built.call(env_switch.env_remove, ids=[OLD]) == {"removed": [OLD]}
    assert sorted(path.name for path in (built.base / "wheels").iterdir() if path.name != ".incoming") == [
        "2.0",
        "2.0.json",
    ]


def test_a_name_cannot_lead_elsewhere(built):
    for name in ("../../runs", "", ".building", "/etc", OLD[:-1]):
        with pytest.raises(OpError) as caught:
            build(built, name, "1.0")
        assert caught.value.kind == "bad_request"


def test_nothing_is_changed_without_the_lease(place):
    for op, words in (
        (env_build.env_build, {"id": OLD, "tree": "1.0"}),
        (env_switch.env_use, {"purpose": "train", "id": OLD}),
        (env_switch.env_remove, {"ids": [OLD]}),
    ):
        with pytest.raises(OpError) as caught:
            place.call(op, **words)
        assert caught.value.kind == "no_lease"
    assert not Path(place.base).exists()


def test_a_cancelled_build_takes_uv_with_it(built):
    """As a lost link does: the op is cancelled, uv dies with it, and nothing is left."""
    import threading

    from orchestrator.agent.far.channel import Channel

    hold = built.base / "hold"
    stopper = {
        "stopper.pth": "import stopping\n",
        "stopping.py": f"import time\nopen({str(hold)!r}, 'w')\ntime.sleep(60)\n",
    }
    send(built, "3.0", make_wheel(built.base / "3", "stopper", "3.0", stopper))
    channel = Channel(1, lambda header, body: None)
    params = {"base": str(built.base), "id": NEW, "tree": "3.0", "python": PYTHON, "requirements": {}, "limit_s": 60}
    ended = []

    def work():
        try:
            env_build.env_build(params, b"", channel)
        except BaseException as error:
            ended.append(type(error).__name__)

    thread = threading.Thread(target=work)
    thread.start()
    eventually(hold.exists, "uv compiles")
    compiling = process.processes_with(env_build.MARK, str(built.base / "envs"))
    assert compiling and {os.getpriority(os.PRIO_PROCESS, stat.pid) for stat in compiling} == {19}
    channel.cancel()
    thread.join(20)
    assert ended == ["Cancelled"]
    eventually(lambda: not process.processes_with(env_build.MARK, str(built.base / "envs")), "uv is gone")
    assert not (built.base / "envs" / ".building").exists()


def test_too_little_space_is_told_before_anything_is_installed(built, tmp_path):
    """A wheel whose table of contents says that it holds more than any disk."""
    wheel = built.base / "wheels" / "2.0" / "wheels" / "huge-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("huge.bin", b"")
        archive.filelist[0].file_size = archive.filelist[0].compress_size = 1 << 60
    with pytest.raises(OpError, match="nothing was built") as caught:
        build(built, NEW, "2.0")
    assert caught.value.kind == "disk_full" and "about 126" in caught.value.evidence
    assert not (built.base / "envs" / NEW).exists() and says(built, OLD) == "1.0"


@pytest.mark.parametrize("record", ["{}", "[1]", f'{{"id": "{NEW}"}}', "other"])
def test_a_record_that_is_not_its_own_makes_no_environment(built, record):
    path = built.base / "envs" / OLD / "complete.json"
    text = path.read_text()
    path.write_text(text.replace(OLD, NEW) if record == "other" else record)
    assert built.call(env_store.env_list)["environments"] == {OLD: None}
    with pytest.raises(OpError, match="no complete environment"):
        use(built, OLD)
    path.write_text(text)
    assert use(built, OLD)["id"] == OLD


@pytest.mark.parametrize("told", ["", "{", "[]", '{"train": 5}', '{"train": {"id": 5}}', '{"train": {"id": "../x"}}'])
def test_nothing_is_removed_while_it_is_not_known_what_is_current(built, told):
    (built.base / "envs" / "current.json").write_text(told)
    for ids in (None, [OLD]):
        with pytest.raises(OpError, match="which environments are current is not known") as caught:
            built.call(env_switch.env_remove, ids=ids)
        assert caught.value.kind == "busy" and says(built, OLD) == "1.0"
    assert use(built, OLD)["before"] is None
    assert built.call(env_switch.env_remove, ids=None) == {"removed": []}


@pytest.mark.parametrize("spoiled", ["wheels/alpha-2.0-py3-none-any.whl", "uv/uv.whl"])
def test_wheels_that_are_no_longer_what_was_sent_are_taken_away(built, spoiled):
    tree = built.base / "wheels" / "2.0"
    (program,) = (tree / "uv").iterdir()
    program.unlink()
    program.write_bytes(built.uv.read_bytes())
    (built.base / "wheels" / ".incoming").mkdir()
    release_store.write_record(str(tree), "2.0", scan(str(tree), ()), None)
    whole = (tree / spoiled).read_bytes()
    (tree / spoiled).write_bytes(whole[: len(whole) // 2] + b"?" + whole[len(whole) // 2 + 1 :])
    with pytest.raises(OpError) as caught:
        build(built, NEW, "2.0")
    assert caught.value.kind == "spoiled" and spoiled in caught.value.evidence
    assert not tree.exists() and not release_store.is_complete(str(tree))
    assert says(built, OLD) == "1.0" and not (built.base / "envs" / NEW).exists()
