"""What is said of a run is kept whole: by many at once, over torn lines, and told in the list of runs."""

import json
import threading

import pytest

from orchestrator.agent.far import remarks, runs
from orchestrator.agent.far.errors import OpError
from orchestrator.ledger.runs import parse_runs

COLD = {"id": "cold-cache", "severity": "warning", "title": "the cache is cold", "evidence": ["6 of 2000 graphs"]}
SLOW = {"id": "slow", "severity": "critical", "title": "4.6 Ktok/s", "evidence": []}


@pytest.fixture
def run(place):
    folder = place.base / "runs" / "r1"
    folder.mkdir(parents=True)
    (folder / "exit.json").write_text('{"exit_code": 0}')
    return folder


def summary(place):
    answer, tails = place.call(runs.runs_overview)
    return parse_runs(json.loads(json.dumps(answer)), tails)[0]


def note(place, text):
    return place.call(remarks.note_run, run_id="r1", text=text, who="ann@laptop")


def found(place, *findings):
    return place.call(remarks.keep_findings, run_id="r1", findings=list(findings), who="ann@laptop")


def test_a_finding_is_written_when_it_comes_and_when_it_goes(place, run):
    assert not summary(place).looked
    for _ in range(2):
        assert found(place) == {"new": [], "gone": []}
        (looked,) = remarks.parse((run / "remarks.jsonl").read_bytes())
        assert looked["kind"] == "look" and summary(place).looked and not summary(place).findings
    assert found(place, COLD) == {"new": ["cold-cache"], "gone": []}
    size = (run / "remarks.jsonl").stat().st_size
    assert found(place, COLD) == {"new": [], "gone": []}
    assert (run / "remarks.jsonl").stat().st_size == size, "a watch asks every second"
    assert found(place, SLOW) == {"new": ["slow"], "gone": ["cold-cache"]}
    cold, slow = summary(place).findings
    assert (cold.id, cold.evidence) == ("cold-cache", ("6 of 2000 graphs",)) and cold.gone_at >= cold.first_at
    assert (slow.severity, slow.title, slow.gone_at) == ("critical", "4.6 Ktok/s", None)
    assert found(place, SLOW, COLD)["new"] == ["cold-cache"]
    again = summary(place).findings[0]
    assert again.gone_at is None and again.first_at == cold.first_at
    assert sum(line["kind"] == "look" for line in remarks.parse((run / "remarks.jsonl").read_bytes())) == 1


def test_a_note_is_no_look_of_the_doctor_and_a_finding_is_one(place, run):
    note(place, "slow?")
    assert not summary(place).looked
    found(place, COLD)
    assert summary(place).looked and b'"look"' not in (run / "remarks.jsonl").read_bytes()


def test_twenty_people_at_once_lose_no_note(place, run):
    start = threading.Barrier(20)

    def write(number):
        start.wait(10)
        note(place, f"note {number}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    lines = remarks.parse((run / "remarks.jsonl").read_bytes())
    assert sorted(line["text"] for line in lines) == sorted(f"note {number}" for number in range(20))


def test_a_file_cut_at_any_byte_keeps_what_was_whole_and_takes_more(place, run):
    path = run / "remarks.jsonl"
    note(place, "first: grüße")
    whole = path.stat().st_size
    found(place, COLD)
    data = path.read_bytes()
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        note(place, "after")
        told = summary(place)
        kept = ["first: grüße"] if cut >= whole - 1 else []
        assert [one.text for one in told.notes] == [*kept, "after"], f"cut at {cut}"
        assert len(told.findings) == (cut >= len(data) - 1)


def test_nothing_is_taken_that_is_no_remark(place, run):
    for wrong in ("", " \n", "x" * 3000, 7):
        with pytest.raises(OpError) as refused:
            note(place, wrong)
        assert refused.value.kind == "bad_request"
    with pytest.raises(OpError) as refused:
        place.call(remarks.note_run, run_id="r2", text="x", who="me")
    assert refused.value.kind == "missing"
    with pytest.raises(OpError):
        found(place, {"severity": "info"})
    (run / "remarks.jsonl").write_bytes(b"x" * remarks.MAX_BYTES)
    with pytest.raises(OpError) as refused:
        note(place, "more")
    assert refused.value.kind == "io" and (run / "remarks.jsonl").stat().st_size == remarks.MAX_BYTES


def test_of_a_run_of_any_length_its_rate_is_a_few_values(place, run):
    (run / "run.log").write_text("".join(f"step {step} loss 1.0 {1000 + step}.0 tok/s\n" for step in range(50_000)))
    told = summary(place)
    assert len(told.trend) == 16 and list(told.trend) == sorted(told.trend)
    assert told.trend[0] < 1100 and told.trend[-1] == 50_999.0
    assert told.throughput.long_rate.per_s < told.throughput.rate.per_s == 50_999.0
    lines = [json.dumps({"step": step, "tokens_per_s": 20.0 * step, "fill": "x" * 300}) for step in range(3000)]
    (run / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 3000, "tok']))
    told = summary(place)
    assert len(told.trend) == 16 and told.trend[-1] == 20.0 * 2999
    (run / "metrics.jsonl").write_text('{"tokens_per_s": 5}\n[]\n{"tokens_per_s": "x"}\n')
    assert summary(place).trend == (5.0,)


def test_a_run_that_is_as_it_was_is_not_told_again(place, run):
    (first,) = place.call(runs.runs_overview)[0]["runs"]
    known = {"r1": first["stamp"]}
    (again,) = place.call(runs.runs_overview, known=known)[0]["runs"]
    assert again == {"id": "r1", "stamp": first["stamp"], "same": True}
    note(place, "now")
    (changed,) = place.call(runs.runs_overview, known=known)[0]["runs"]
    assert changed["remarks"]["notes"][0]["text"] == "now" and changed["stamp"] != first["stamp"]
    (run / "exit.json").unlink()
    assert place.call(runs.runs_overview)[0]["runs"][0]["stamp"] is None, "how it goes is asked anew"
