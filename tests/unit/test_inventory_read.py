"""Right inventories become the right facts; no text whatever raises anything but InventoryError."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import InventoryError
from orchestrator.inventory.loader import MAX_BYTES, load_inventory
from orchestrator.inventory.model import Caches, Environment, Expected, Host, Inventory, Payload, Target, Topology
from orchestrator.inventory.read import read_inventory

ROOT = Path(__file__).resolve().parent.parent.parent


def read(text: str) -> Inventory:
    return read_inventory(text, Path("/project/inventory.yaml"), Path("/home/me"))


def test_the_shipped_inventory() -> None:
    inventory = load_inventory(ROOT / "inventory.yaml")
    target = inventory.targets["ct200"]
    assert target.label == "ct200 (container 200 on root@10.1.2.6)"
    assert target.base == "/root/orch"
    assert target.host.connect_timeout_s == 10
    assert target.payload is not None
    assert target.payload.folder == ROOT / "remote_payload"
    assert target.payload.devices == 8


def test_defaults() -> None:
    inventory = read(
        "hosts: {a: {address: box, containers: {c: {id: 100}}}}\n"
        "payloads: {p: {folder: ., command: [python, train.py]}}\n"
    )
    host = Host("a", "box", "auto", None, None, None, None, None, 10.0, 5.0, 3, "none")
    assert inventory.hosts == {"a": host}
    assert inventory.targets == {"c": Target("c", host, "pct", 100, "/root", None, None)}
    assert inventory.groups == {}
    assert inventory.payloads["p"] == Payload(
        name="p",
        folder=Path("/project"),
        command=("python", "train.py"),
        session=None,
        python=None,
        environments={},
        environment=None,
        environment_check="warn",
        variables={},
        data=None,
        model=None,
        caches=Caches(None, None, None),
        topology=None,
        devices=None,
        min_free_disk_gib=1.0,
        stop_timeout_s=120.0,
        settings={},
        exclude=(),
        expected=Expected(None, None, {}),
    )


EVERYTHING = """
hosts:
  box:
    address: 2001:db8::6
    user: root
    port: 2222
    identity_file: ~/.ssh/id_lab
    ssh_config: ../ssh_config
    known_hosts: /etc/hosts_known
    connect_timeout_s: 2.5
    keepalive: {interval_s: 1, count: 5}
    become: sudo
    transport: openssh
    containers:
      ct200: {id: 200, kind: pct, root: /data, python: python3.12, payload: p}
  here: {transport: local, root: /tmp/x, python: /usr/bin/python3, payload: p}
groups:
  both: [inner, here]
  inner: [ct200, here]
payloads:
  p:
    folder: ~/train
    command: [python, train.py, "--name=a b"]
    session: dflash
    python: /root/venv/bin/python
    variables: {OMP_NUM_THREADS: "8", EMPTY: ""}
    data: /data/tokens
    model: Qwen/Qwen3-8B
    caches: {inductor: /tmp/torchinductor_root, triton: /tmp/t, extensions: /root/.cache/torch_extensions}
    topology: {targets: 5, drafters: 3}
    devices: 2
    min_free_disk_gib: 0.5
    stop_timeout_s: 30
    settings: {optimizer.lr: 1e-4, steps: 10, resume: true, deep: {list: [1, two]}}
    exclude: ["*.bak"]
    expected:
      tokens_per_s: {min: 20000, max: 21500.5}
      hashes: {dflash_model.py: "md5:210c008e7560ff68dbea6c7ae461aa21"}
"""


def test_everything_that_can_be_said() -> None:
    inventory = read(EVERYTHING)
    box, here = inventory.hosts["box"], inventory.hosts["here"]
    assert box == Host(
        name="box",
        address="2001:db8::6",
        transport="openssh",
        user="root",
        port=2222,
        identity_file=Path("/home/me/.ssh/id_lab"),
        ssh_config_file=Path("/ssh_config"),
        known_hosts_file=Path("/etc/hosts_known"),
        connect_timeout_s=2.5,
        keepalive_interval_s=1.0,
        keepalive_count=5,
        become="sudo",
    )
    payload = inventory.payloads["p"]
    assert inventory.targets == {
        "ct200": Target("ct200", box, "pct", 200, "/data", "python3.12", payload),
        "here": Target("here", here, "none", None, "/tmp/x", "/usr/bin/python3", payload),
    }
    assert here.address == "localhost"
    assert inventory.groups == {"both": ("ct200", "here"), "inner": ("ct200", "here")}
    assert payload.folder == Path("/home/me/train")
    assert payload.command == ("python", "train.py", "--name=a b")
    assert payload.variables == {"OMP_NUM_THREADS": "8", "EMPTY": ""}
    assert payload.topology == Topology(5, 3)
    assert payload.devices == 2
    assert payload.settings == {"optimizer.lr": 1e-4, "steps": 10, "resume": True, "deep": {"list": [1, "two"]}}
    assert payload.expected == Expected(20000, 21500.5, {"dflash_model.py": "md5:210c008e7560ff68dbea6c7ae461aa21"})


SIDE_BY_SIDE = """
hosts: {a: {address: box, root: /root, payload: p}}
payloads:
  p:
    folder: f
    command: [python, train.py]
    environments:
      train: {lock: locks/train.txt, python: python3.12, indexes: ["https://packages.example/simple"]}
      datagen: {lock: ~/datagen.txt}
"""


@pytest.mark.parametrize(
    ("said", "chosen"), [("    environment: datagen", "datagen"), ("    python: /root/venv/bin/python", None)]
)
def test_environments_side_by_side(said: str, chosen: str | None) -> None:
    payload = read(SIDE_BY_SIDE + said).payloads["p"]
    train = Environment("train", Path("/project/locks/train.txt"), "python3.12", ("https://packages.example/simple",))
    assert payload.environments == {
        "train": train,
        "datagen": Environment("datagen", Path("/home/me/datagen.txt"), "python3", ()),
    }
    assert payload.environment == chosen


def test_the_only_environment_is_the_one_that_the_command_runs_in() -> None:
    payload = read(SIDE_BY_SIDE.rpartition("      datagen")[0]).payloads["p"]
    assert payload.environment == "train"


def test_no_devices_are_asked_for_with_zero() -> None:
    payload = "{folder: f, command: [a], topology: {targets: 1, drafters: 1}, devices: 0}"
    assert read(f"hosts: {{a: {{address: x}}}}\npayloads: {{p: {payload}}}").payloads["p"].devices is None


@pytest.mark.parametrize(
    "text", ["a" * 30, "[" * 5000, "a: " * 500, "- " * 5000, "{a: " * 3000, "? " * 3000, '"\\UFFFFFFFF"']
)
def test_odd_texts_are_refused(text: str) -> None:
    with pytest.raises(InventoryError):
        read(text)


@pytest.mark.parametrize("value", ["1" * 5000, "0" * 5000, "1e999", '"\\ud800"', "0x" + "f" * 5000, "1:" * 2000 + "1"])
def test_odd_values_are_refused(value: str) -> None:
    with pytest.raises(InventoryError) as caught:
        read(f"hosts:\n  a:\n    address: x\n    port: {value}\n")
    assert f"{caught.value.what} {caught.value.evidence}".encode()


WORDS = ["hosts", "address", "containers", "payloads", "groups", "id", "200", "no", "08", "1:1", "1e9", "null", "!!int"]
WORDS += ["<<", "---", "...", "%YAML", "\\x00", "é"]
FRAGMENTS = st.sampled_from([*"\n\n   ::,-[]{}\"'&*!#|>?%@`~=\t\r", "\n  ", "\n    ", ": ", "- ", *WORDS])


@given(st.one_of(st.text(max_size=200), st.lists(FRAGMENTS, max_size=60).map("".join)))
@settings(deadline=None)
def test_any_text_is_an_inventory_or_an_inventory_error(text: str) -> None:
    try:
        read(text)
    except InventoryError as error:
        assert error.what


@given(
    st.text(max_size=30),
    st.sampled_from(["2001:db8::6", "root", "2222", "openssh", "ct200", "python3.12", "1e-4", "2.5"]),
)
@settings(deadline=None)
def test_any_value_is_read_or_refused(value: str, place: str) -> None:
    try:
        read(EVERYTHING.replace(place, value, 1))
    except InventoryError as error:
        assert error.what


@given(st.binary(max_size=100))
@settings(deadline=None)
def test_any_bytes_are_refused_cleanly(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(data)
    with pytest.raises(InventoryError):
        load_inventory(path)


def test_bytes_that_are_not_utf8_name_their_line(tmp_path: Path) -> None:
    path = tmp_path / "i.yaml"
    path.write_bytes(b"hosts:\n  a: {address: \xff}\n")
    with pytest.raises(InventoryError, match=r"i\.yaml:2: byte 0xff is not UTF-8"):
        load_inventory(path)


def test_a_byte_order_mark_is_named(tmp_path: Path) -> None:
    path = tmp_path / "i.yaml"
    path.write_bytes(b"\xef\xbb\xbfhosts: {}\n")
    with pytest.raises(InventoryError, match="byte order mark"):
        load_inventory(path)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "i.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(InventoryError, match="larger than 256 KiB"):
        load_inventory(path)


GOOD = "hosts: {a: {address: x}}\n"


def test_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "i.yaml"
    path.write_bytes(b"hosts:\r\n  a: {address: x}\r\n")
    assert load_inventory(path).hosts["a"].address == "x"


def test_the_nearest_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inventory.yaml").write_text(GOOD)
    inner = tmp_path / "b" / "c"
    inner.mkdir(parents=True)
    monkeypatch.delenv("ORCH_INVENTORY", raising=False)
    monkeypatch.chdir(inner)
    assert load_inventory(None).path == tmp_path / "inventory.yaml"


def test_the_search_ends_at_the_repositorys_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inventory.yaml").write_text(GOOD)
    inner = tmp_path / "b" / "c"
    inner.mkdir(parents=True)
    (tmp_path / "b" / ".git").mkdir()
    monkeypatch.delenv("ORCH_INVENTORY", raising=False)
    monkeypatch.chdir(inner)
    with pytest.raises(InventoryError) as caught:
        load_inventory(None)
    assert caught.value.evidence.splitlines()[1:] == [f"{inner}/inventory.yaml", f"{tmp_path}/b/inventory.yaml"]


def test_the_variable_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.yaml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORCH_INVENTORY", "other.yaml")
    assert load_inventory(None).path == tmp_path / "other.yaml"
    monkeypatch.setenv("ORCH_INVENTORY", "missing.yaml")
    with pytest.raises(InventoryError, match=r"missing\.yaml cannot be read: No such file"):
        load_inventory(None)


def test_a_folder_is_not_an_inventory(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="Is a directory"):
        load_inventory(tmp_path)


@pytest.mark.parametrize("text", ["\ufeff\ufeff", "\ufeff", "\ufeff\n# nothing\n\ufeff\n"])
def test_marks_alone_are_an_empty_file(text: str) -> None:
    with pytest.raises(InventoryError, match="empty"):
        read(text)
