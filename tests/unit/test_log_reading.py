"""Logs of any size and any content: the same reading, in bounded time and memory."""

import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.operations.readers import read_as
from orchestrator.probes.log_reading import NEEDLES, read_log, read_log_pieces
from orchestrator.probes.log_scan import LogScan
from orchestrator.probes.rows import rows_of
from tests.reading import unplaced

STEP = (
    "[rank0]:[titan] 2025-03-12 11:10:{:02},511 - root - INFO - "
    "step: {}  loss:  {:.4f}  tps: 193,{:03}  tflops: 18.36\n"
)
FAILURE = (
    "\r  6%|▋         | 89/1398 [1:32:11<25:28:13, 70.05s/it]Traceback (most recent call last):\n"
    + "".join(f'  File "/srv/train.py", line {n}, in step_{n}\n    self.forward(batch)\n' for n in range(300))
    + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
    "GPU 3 has a total capacity of 79.11 GiB\n"
)


def steps(count, first=1):
    return "".join(STEP.format(n % 60, n, 2 + n % 97 / 97, n % 1000) for n in range(first, first + count))


def test_a_failure_in_the_midst_of_a_long_log_is_found_whole_and_in_its_place():
    text = "é" * 100 + "\n" + steps(15000) + FAILURE + steps(15000, 20000)
    reading = read_log(text)
    whole = read_log(FAILURE)
    assert [each.kind for each in reading.failures] == [each.kind for each in whole.failures] == ["cuda_oom"]
    assert reading.tracebacks[0].text == whole.tracebacks[0].text
    place = reading.tracebacks[0].span.of(text)
    assert place.startswith("Traceback (most") and place.endswith("79.11 GiB")
    assert reading.failures[0].values["tried_bytes"].span.of(text) == "2.00 GiB"
    assert reading.steps[-1].step == 34999 and reading.steps[-1].spans["step"].of(text) == "34999"
    assert reading.failures[0].survived and not whole.failures[0].survived


def test_bytes_that_are_no_utf8_count_as_one_character_each():
    data = b"\xff\xfe" * 50 + b"\n" + (steps(6000) + FAILURE + steps(6000)).encode()
    text = data.decode("utf-8", "surrogateescape")
    in_pieces = read_log_pieces([data[begin : begin + 77777] for begin in range(0, len(data), 77777)])
    assert in_pieces == read_log(text)
    assert in_pieces.failures[0].values["gpu"].span.of(text) == "3"


def test_what_is_kept_of_a_log_full_of_failures_is_bounded():
    scan = LogScan(NEEDLES)
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = [a + b + c for a in letters for b in letters for c in letters]
    failing = "".join(f"RuntimeError: CUDA out of memory {name}\n" for name in names).encode()
    tracemalloc.start()
    for _ in range(40):
        scan.feed(failing)
    telling, tail = scan.finish()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(len(part.text) for part in telling) < 8 << 20 and sum(len(part.text) for part in tail) < 4 << 20
    assert telling[0].text.startswith("RuntimeError: CUDA out of memory aaa\n")
    assert telling[-1].text.endswith("memory zzz\n")
    assert peak < 40 << 20


def test_what_every_line_holds_hides_no_failure():
    megatron = " iteration {:8}/ 900000 | lm loss: 2.5E+00 | number of nan iterations:   0 | process killed: 0 |\n"
    often = "".join(megatron.format(n) for n in range(60_000))
    text = often[: len(often) // 2] + "\n" + FAILURE + often[len(often) // 2 :]
    reading = read_log(text)
    assert [each.kind for each in reading.failures] == ["cuda_oom"] and len(reading.tracebacks) == 1


def test_a_loss_that_is_no_number_is_found_where_it_began():
    text = steps(9000) + "step 9001 loss nan\n" + steps(9000, 9002)
    assert [each.kind for each in read_log(text).failures] == ["divergence"]


def test_each_line_that_tells_of_a_failure_is_of_its_kind():
    page = Path(__file__).parent.parent / "data" / "printed" / "failures.tsv"
    rows = [line.split("\t") for line in page.read_text("utf-8").splitlines() if not line.startswith("#")]
    wrong = {}
    for kind, line in rows:
        found = [each.kind for each in read_log(line.replace("\\n", "\n")).failures]
        if kind not in found:
            wrong[line] = found
    assert wrong == {} and len(rows) > 30


LOGS = Path(__file__).parent.parent / "data" / "read" / "log"
WRAPS_BADLY = {  # a pane drops what these cannot be read without: blanks of a bar, which of two writers a row is of
    "crash-01-faulthandler-current-thread-second.txt",
    "nccl-08-warn-lines-retcode-6.txt",
    "traceback-04-two-threads-interleaved.txt",
    "nccl-watchdog-stuck-wrapped-pane.txt",  # is one already
    "traceback-task-group.txt",  # the rest of a wrapped row has no margin, so that the tree ends there
}


def wrapped(text):
    """As a pane of 80 columns shows it, blanks at the ends of its rows left out."""
    rows = [row.text.expandtabs() for row in rows_of(text)]
    return "\n".join(row[begin : begin + 80].rstrip() for row in rows for begin in range(0, max(1, len(row)), 80))


@pytest.mark.parametrize("path", [path for path in sorted(LOGS.glob("*.txt")) if path.name not in WRAPS_BADLY])
def test_a_log_copied_from_a_pane_of_80_columns_tells_of_the_same_failures_and_steps(path):
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    found, expected = read_log(wrapped(text)), read_log(text)
    assert sorted(each.kind for each in found.failures) == sorted(each.kind for each in expected.failures)
    assert (found.root and found.root.kind) == (expected.root and expected.root.kind)
    assert [(each.step, each.loss) for each in found.steps] == [(each.step, each.loss) for each in expected.steps]


@pytest.mark.parametrize("name", ["throughput-01-titan-rank-prefix", "throughput-04-titan-checkpoint-stall"])
def test_steps_whose_rows_were_cut_at_a_blank_or_within_a_number_are_the_same(name):
    text = (LOGS / f"{name}.txt").read_text("utf-8")

    def steps_of(reading):
        return [(step.step, step.loss, [rate.per_s for rate in step.rates]) for step in reading.steps]

    assert steps_of(read_log(wrapped(text))) == steps_of(read_log(text))


HOSTILE = [
    "Traceback (most recent call last):\n",
    "host abc Traceback (most recent call last):\n",
    '  File "a.py", line 1, in f\n',
    "CUDA out of memory. Tried to allocate 1.0 GiB\n",
    "CUDA out of memory. Tried to allocate 1.0 GiB. GPU 0 WorkNCCL(SeqNum=1, OpType=A, [Rank 1] killed process 1 (a) ",
    "  rank      : 0 (local_rank: 0)\n",
    "Thread 0x0001 (most recent call first):\n",
    "During handling of the above exception, another exception occurred:\n",
    "".join(f"[rank{n}]: Traceback (most recent call last):\n" for n in range(50)),
    "  + | +-",
    "  6%|▋ | 1/2 [00:00<00:00, 1it/s]",
    "(a b=c ",
    "a" + " " * 30 + "b",
    "\x1b]",
    "\x00",
    "\rx",
    " ",
]


@pytest.mark.parametrize("token", HOSTILE)
def test_time_grows_with_the_length_only(token):
    """A quadratic expression or loop takes minutes here."""

    def seconds(count):
        text = (token * (count // len(token) + 1))[:count]
        before = time.process_time()
        read_log(text)
        return time.process_time() - before

    seconds(1000)
    short = seconds(50_000)
    assert seconds(800_000) < 40 * short + 2.0


PIECES = st.sampled_from(
    [
        *HOSTILE[:8],
        "step 5/10 loss 2.0 3.1 it/s\n",
        "ValueError: x\n",
        "[rank1]: ",
        "    code()\n",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n",
        "  exitcode  : -9 (pid: 14750)\n",
        "Root Cause (first observed failure):\n[0]:\n",
        "Fatal Python error: Segmentation fault\n",
        "Current thread 0x00007f (most recent call first):\n",
        "Killed\n",
        "  + Exception Group Traceback (most recent call last):\n",
        "  | ValueError: y\n",
        "\n",
        "\r",
        "\x1b[31m",
        "\ud8ff",
        "é\u2028",
        "x" * 79,
        "{'loss': nan, 'grad_norm': 1e5}\n",
        "libcudnn.so.9: cannot open shared object file\n",
        "3.00 GiB",
        "№½²",
    ]
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=40).map("".join))
@example("Traceback (most recent call last):")
@settings(max_examples=200, deadline=None)
def test_any_log_is_read_and_every_value_has_its_place(text):
    reading = read_as("log", text)
    assert unplaced(reading, text) == []
    for failure in reading.failures:
        assert failure.remedy and failure.span.start < failure.span.end
