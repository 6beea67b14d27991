"""Given data: every sample is accounted for, only the assistant's words are learned, growth is told from change."""

from __future__ import annotations

import json
from types import SimpleNamespace

import dataset
import pytest
import samples
from chat import ChatFormat, encode_conversation, question_ids
from data import RECORD, answerer, read_data
from dataset import held_out_folder, rows_folder
from hypothesis import given, settings
from hypothesis import strategies as st
from identity import identify, other_than_grown
from rows import open_rows
from samples import DataError, data_files, is_datasets_folder, parse_line, read_samples
from stopping import StopRequest
from tiny import tiny_config, tiny_target
from tokens import train_vocabulary

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if not enable_thinking %}...{% endif %}{% endif %}"
)
TALK = [
    {"role": "user", "content": "one?"},
    {"role": "assistant", "content": "...two"},
    {"role": "user", "content": "three?"},
    {"role": "assistant", "content": "...four"},
]


@pytest.fixture(scope="module")
def vocabulary():
    return train_vocabulary(["one two three four <user> <assistant>"], 280)


def quiet():
    said = []
    return SimpleNamespace(say=said.append, detail=lambda text: None, said=said)


def read(tmp_path, vocabulary, lines, *, target=None, **changes):
    source = tmp_path / "data.jsonl"
    source.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    folder = tmp_path / "prepared"
    folder.mkdir(exist_ok=True)
    template = tmp_path / "template.jinja"
    template.write_text(TEMPLATE)
    config = tiny_config(**{"data__held_out_every": 2, "data__chat_template": str(template), **changes})
    progress = quiet()
    read_data(config, source, folder, vocabulary, lambda: target, progress, StopRequest())
    return json.loads((folder / RECORD).read_text()), progress.said, folder


def test_only_what_the_assistant_wrote_is_learned_up_to_the_token_that_ends_it(vocabulary):
    ids, learned = encode_conversation(vocabulary, ChatFormat(TEMPLATE, False), TALK)
    text = [vocabulary.tokenizer.decode([one]) for one in ids]
    spoken = "".join(one if mark else "~" for one, mark in zip(text, learned, strict=True))
    assert [part for part in spoken.split("~") if part] == ["two<|eos|>", "four<|eos|>"]
    question = question_ids(vocabulary, ChatFormat(TEMPLATE, False), TALK)
    assert ids[: len(question)] == question
    assert learned[len(question)]


def test_an_answer_the_template_shows_otherwise_later_is_not_learned(vocabulary):
    forgets = TEMPLATE.replace(
        "{{ m.content }}", "{{ m.content[3:] if m.role == 'assistant' and not loop.last else m.content }}"
    )
    ids, learned = encode_conversation(vocabulary, ChatFormat(forgets, False), TALK)
    assert vocabulary.tokenizer.decode([one for one, mark in zip(ids, learned, strict=True) if mark]) == "four<|eos|>"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ("{}", "none of conversations"),
        ('{"text": ""}', "empty"),
        ('{"text": 3}', "not text"),
        ('{"input_ids": [1, -2]}', "not a list of whole numbers"),
        ('{"input_ids": [1, true]}', "not a list of whole numbers"),
        ('{"input_ids": [1, 2], "loss_mask": [1]}', "not 2 zeros and ones"),
        ('{"messages": []}', "empty"),
        ('{"messages": [{"role": "user"}]}', "message 1 lacks role or content"),
        ('{"messages": [{"role": "user", "content": "x"}]}', "no message is the assistant's"),
        ("\xff", "not JSON"),
        ('{"text": "one \\ud83d two"}', "half a character"),
        ('{"\\uDC00": 1}', "half a character"),
        ('{"\\u001b[31m": 1}', r"it has '\x1b[31m'"),
    ],
)
def test_a_bad_line_is_named_with_its_place(line, reason):
    bad = parse_line("a.jsonl:3", line.encode("latin-1"))
    assert isinstance(bad, samples.BadSample)
    assert bad.place == "a.jsonl:3"
    assert reason in bad.reason


def test_a_whole_pair_of_escapes_is_a_character():
    assert parse_line("a.jsonl:1", rb'{"text": "\ud83d\ude00 one"}') == samples.Text("a.jsonl:1", "\U0001f600 one")


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists).map(
        lambda value: json.dumps({"messages": value, "input_ids": value}).encode()
    )
)
@settings(max_examples=80, deadline=None)
def test_no_line_raises(line):
    parse_line("place", line)


def test_every_sample_is_made_or_accounted_for(tmp_path, vocabulary):
    lines = [
        {"conversations": [{"from": "human", "value": "one"}, {"from": "gpt", "value": "...two three"}]},
        {"text": "one two three four"},
        "{broken\n",
        {"input_ids": [5, 6, 7, 8], "loss_mask": [0, 0, 1, 1]},
        {"input_ids": [5, 6, 7, 8], "loss_mask": [0, 1, 0, 1]},
        {"input_ids": [5, vocabulary.mask_id, 7]},
        {"input_ids": [5, 99999]},
        "\n",
        {"input_ids": [5]},
    ]
    record, said, folder = read(tmp_path, vocabulary, lines)
    (part,) = record["parts"]
    assert part["read"] == 8
    assert (part["made"], part["held_out"]) == (3, 1)
    assert part["made"] + sum(part["skipped"].values()) + sum(part["failed"].values()) == part["read"]
    assert part["skipped"]["bad"] == 1
    assert part["first_bad"] == [
        one.removeprefix("left out ") for one in said if "left out data.jsonl:3: not JSON" in one
    ]
    assert record["format"] == {"chat_template_sha256": record["format"]["chat_template_sha256"], "thinking": False}
    assert len(open_rows([rows_folder(folder, 0)])) == 2
    tokens, learned = open_rows([rows_folder(folder, 0)]).read(1)
    assert (tokens.tolist(), learned.tolist()) == ([5, 6, 7, 8], [False, False, True, True])
    assert len(open_rows([held_out_folder(folder, 0)])) == 1
    assert any("8 samples read, 3 rows made (1 held out), 5 left out" in one for one in said)


def test_a_chat_template_that_is_not_there_is_named(tmp_path, vocabulary):
    with pytest.raises(DataError, match=r"data\.chat_template: .*nowhere"):
        read(tmp_path, vocabulary, [{"text": "one"}], data__chat_template=str(tmp_path / "nowhere"))


def test_strict_stops_at_the_first_bad_line(tmp_path, vocabulary):
    with pytest.raises(DataError, match=r"data\.jsonl:2: not JSON"):
        read(tmp_path, vocabulary, [{"text": "one two"}, "{\n"], data__strict=True)


def test_long_samples_are_cut_and_empty_data_is_refused(tmp_path, vocabulary):
    _, _, folder = read(tmp_path, vocabulary, [{"text": "one two three four"}] * 2, data__max_tokens=4)
    assert open_rows([rows_folder(folder, 0)]).lengths.tolist() == [4]
    with pytest.raises(DataError, match="no sample gave a row"):
        (tmp_path / "none").mkdir()
        read(tmp_path / "none", vocabulary, [{"input_ids": [1]}])
    with pytest.raises(DataError, match="no sample is held out"):
        (tmp_path / "one").mkdir()
        read(tmp_path / "one", vocabulary, [{"text": "one two"}])


def test_a_datasets_folder_is_read_row_by_row_from_where_it_was_left(tmp_path):
    datasets, arrow = pytest.importorskip("datasets"), pytest.importorskip("pyarrow")
    folder = tmp_path / "talks"
    columns = {"conversations": None, "messages": None, "text": None}
    rows = [{**columns, "messages": TALK}, {**columns, "text": "one two"}, {**columns, "text": ""}]
    made = datasets.Dataset(datasets.table.InMemoryTable(arrow.Table.from_pylist(rows)), fingerprint="made-here")
    made.save_to_disk(str(folder))
    assert is_datasets_folder(folder) and data_files(folder)
    found = list(read_samples(folder, {}))
    assert [(name, number) for name, number, _ in found] == [("talks", 1), ("talks", 2), ("talks", 3)]
    talk, text, bad = (sample for _, _, sample in found)
    assert (talk.messages, text.text) == (TALK, "one two")
    assert (bad.place, bad.reason) == ("talks: row 3", "text is not text, or empty")
    assert [number for _, number, _ in read_samples(folder, {"talks": 2})] == [3]
    datasets.DatasetDict({"train": made}).save_to_disk(str(tmp_path / "splits"))
    with pytest.raises(DataError, match=r"several splits \(train\)"):
        list(read_samples(tmp_path / "splits", {}))


def test_conversations_without_a_template_and_a_datasets_folder_without_its_package_are_named(
    tmp_path, vocabulary, monkeypatch
):
    with pytest.raises(DataError, match=r"data\.chat_template"):
        encode_conversation(vocabulary, ChatFormat(None, False), TALK)
    (tmp_path / "dataset_info.json").write_text("{}")
    monkeypatch.setattr(samples.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="pip install datasets"):
        list(samples.read_samples(tmp_path, {}))
    with pytest.raises(DataError, match="no data at"):
        samples.data_files(tmp_path / "nowhere")


def test_the_target_writes_the_answers_and_what_it_cannot_answer_is_counted(tmp_path, vocabulary, monkeypatch):
    monkeypatch.setattr(dataset, "WRITE_AT_ONCE", 2)
    lines = [
        {"input_ids": [3, 4, 5, 9, 9], "loss_mask": [0, 0, 0, 1, 1]},
        {"messages": TALK},
        {"text": "one " * 30},
    ] * 2
    lines.append({"input_ids": list(range(3, 24)), "loss_mask": [0] * 20 + [1]})
    target = tiny_target(vocabulary=vocabulary.size)
    record, _, folder = read(tmp_path, vocabulary, lines, target=target, data__regenerate=True, data__max_tokens=21)
    (part,) = record["parts"]
    assert part["read"] == 7 == part["made"] + sum(part["failed"].values()) + sum(part["skipped"].values())
    assert part["skipped"]["with a question that fills data.max_tokens"] >= 1
    tokens, learned = open_rows([rows_folder(folder, 0)]).read(0)
    assert tokens[:3].tolist() == [3, 4, 5]
    assert learned.tolist() == [False] * 3 + [True] * (len(tokens) - 3)
    answers = answerer(tiny_config(data__max_tokens=21), target, vocabulary, quiet(), StopRequest())
    assert answers([[3, 4, 5], [7], [3, 4, 5]]) == [tokens[3:].tolist(), *answers([[7]]), tokens[3:].tolist()]


def test_a_target_that_says_nothing_fails_every_sample(tmp_path, vocabulary):
    lines = [{"input_ids": [3, 4, 5, 9, 9], "loss_mask": [0, 0, 0, 1, 1]}]
    (tmp_path / "data.jsonl").write_text(json.dumps(lines[0]) + "\n")

    def silent(questions):
        return [[] for _ in questions]

    account = dataset.write_part(
        tmp_path / "data.jsonl",
        tmp_path,
        0,
        done={},
        recipe=dataset.Recipe(tiny_config(), vocabulary, ChatFormat(None, False), silent),
        tell=print,
        on_sample=lambda: None,
    )
    assert (account.made, account.failed) == (0, {"the target answered too little": 1})


def test_growth_is_told_from_change(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"x" * 300_000)
    old = identify([file])
    assert other_than_grown(old, [file]) == []
    with file.open("ab") as stream:
        stream.write(b"more")
    (tmp_path / "b.jsonl").write_bytes(b"new")
    assert other_than_grown(old, [file, tmp_path / "b.jsonl"]) == []
    changed = bytearray(file.read_bytes())
    changed[0] = 0
    file.write_bytes(changed)
    assert other_than_grown(old, [file]) == ["a.jsonl is not what it was, where it had been sampled"]
    file.write_bytes(b"short")
    assert other_than_grown(old, [file]) == ["a.jsonl has 5 bytes, had 300000"]
    assert other_than_grown(old, []) == ["a.jsonl is gone"]


def test_grown_data_adds_a_part_and_changed_data_is_refused(tmp_path, vocabulary):
    lines = [{"text": "one two"}, {"text": "three four"}, {"text": "two one"}]
    read(tmp_path, vocabulary, [*lines, '{"text": "half'])
    rows = open_rows([rows_folder(tmp_path / "prepared", 0)])
    before = [rows.read(row)[0].tolist() for row in range(len(rows))]
    record, _, folder = read(
        tmp_path, vocabulary, [*lines, {"text": "half and half"}, {"text": "four"}, {"text": "one"}]
    )
    assert [part["read"] for part in record["parts"]] == [3, 3]
    rows = open_rows([rows_folder(folder, 0), rows_folder(folder, 1)])
    assert [rows.read(row)[0].tolist() for row in range(len(before))] == before
    assert len(rows) == 4
    with pytest.raises(DataError, match=r"not the data the checkpoint was trained on: data\.jsonl is not what it was"):
        read(tmp_path, vocabulary, [{"text": "four five"}, *lines * 4])
    with pytest.raises(DataError, match="the chat format was"):
        read(tmp_path, vocabulary, [*lines, {"text": "half and half"}], data__thinking=True)
