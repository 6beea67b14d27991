"""`orch read` as a person or a script calls it."""

import io
import json

import pytest

from orchestrator.cli.main import main
from orchestrator.operations import captured
from orchestrator.operations.captured import MAX_BYTES
from orchestrator.operations.readers import READERS


def test_json_of_a_file_has_each_value_with_its_place(tmp_path, capsys):
    text = "index, memory.used [MiB]\n0, [N/A]\n1, 12 MiB\n"
    (tmp_path / "smi.csv").write_text(text)
    assert main(["read", "smi-csv", str(tmp_path / "smi.csv"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["schema"], record["kind"], record["characters"]) == ("orch.read/1", "smi-csv", len(text))
    first, second = record["reading"]["gpus"]
    assert first["memory_used_mib"] == {"value": None, "span": [28, 33], "text": "[N/A]"}
    assert second["memory_used_mib"] == {"value": 12, "span": [37, 43], "text": "12 MiB"}
    assert second["name"] is None, "nobody spoke of it"


def test_lines_of_stdin_name_value_and_place(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"container '105' not running!\n")))
    assert main(["read", "pct"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["findings[0].named.container", "105", "11-14"] in lines
    assert ["findings[0].way_out", "pct", "start", "105"] in lines


def test_a_kind_that_is_none_is_said_before_the_file_is_looked_for(tmp_path, capsys):
    assert main(["read", "smi", str(tmp_path / "nothing")]) == 2
    said = capsys.readouterr().err
    assert "`smi` is not a kind" in said and "smi-csv" in said


def test_bytes_that_are_no_text_keep_the_places(tmp_path, capsys):
    (tmp_path / "words").write_bytes(b"\xff\xfe No devices were found\x1b[0m\n")
    assert main(["read", "nvml", str(tmp_path / "words"), "--json"]) == 0
    kind = json.loads(capsys.readouterr().out)["reading"]["findings"][0]["kind"]
    assert kind == {"value": "no_devices", "span": [3, 24], "text": "No devices were found"}


@pytest.mark.parametrize("kind", READERS)
def test_nothing_to_read_is_told_by_the_exit_code(kind, tmp_path, capsys):
    (tmp_path / "nothing").write_text("")
    assert main(["read", kind, str(tmp_path / "nothing")]) == 1
    capsys.readouterr()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["read", "smi", "-"], ["`smi` is not a kind", "smi-csv"]),
        (["read", "pct", "{file}", "--fields", "a,b"], ["--fields has no meaning for pct"]),
        (["read", "pct", "{file}.not"], ["cannot be read: No such file"]),
        (["read", "pct", "{large}"], ["is larger than 64 MiB", "tail -c 64M"]),
    ],
)
def test_what_cannot_be_is_a_usage_error(argv, words, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    (tmp_path / "file").write_text("x")
    with (tmp_path / "large").open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    assert main([word.format(file=tmp_path / "file", large=tmp_path / "large") for word in argv]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words)


def test_a_log_that_is_too_large_to_hold_is_read_in_pieces(tmp_path, monkeypatch, capsys):
    step = "step {:5d}/99999 loss 2.5 é\n"
    rows = [step.format(number) for number in range(2000)]
    rows.insert(1000, 'Traceback (most recent call last):\n  File "/w/t.py", line 1, in <module>\nOSError: no\n')
    data = b"\xff" + "".join(rows).encode()
    (tmp_path / "log").write_bytes(data)
    records = []
    for limit in (MAX_BYTES, 1000):
        monkeypatch.setattr(captured, "MAX_BYTES", limit)
        monkeypatch.setattr(captured, "PIECE_BYTES", 999)  # which cuts within characters
        assert main(["read", "log", str(tmp_path / "log"), "--json"]) == 0
        records.append(json.loads(capsys.readouterr().out))
    whole, pieces = records
    text = data.decode("utf-8", "surrogateescape")
    assert whole["characters"] == pieces["characters"] == len(text)
    begin, end = pieces["reading"]["failures"][0]["line"]["span"]
    assert text[begin:end] == "OSError: no"
    assert [step["step"]["value"] for step in pieces["reading"]["steps"]][-1] == 1999
    assert "text" in whole["reading"]["failures"][0]["line"]
    assert "text" not in pieces["reading"]["failures"][0]["line"]
