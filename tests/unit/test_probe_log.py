"""Tracebacks out of logs: real ones made here by the interpreter, and the odd shapes seen in other people's logs."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.probes.log import find_first_traceback, find_traceback, find_tracebacks
from orchestrator.probes.text import one_line, plain_lines, plain_text

CHAIN = """
def inner(): return {}["key"]
def outer():
    try: inner()
    except KeyError as error: raise ValueError("first line\\n\\nthird line: see above") from error
try: outer()
except ValueError:
    raise RuntimeError("while handling")
"""


def run(source):
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    return done.stderr


def test_a_chain_is_one_and_whole():
    printed = run(CHAIN)
    found = find_tracebacks("step 1 loss 2.0\n" + printed + "\n[orch] ended with exit code 1\n")
    assert len(found) == 1
    assert found[0].text == printed.strip()
    assert found[0].exception == "RuntimeError: while handling" and found[0].exception_type == "RuntimeError"


def test_a_message_of_many_lines_with_gaps_is_kept():
    printed = run("raise RuntimeError('a\\n\\n  b\\nc: d')")
    assert find_traceback(printed + "{'loss': 1.0}\n").text == printed.strip()


@pytest.mark.parametrize("prefix", ["[rank3]: ", "(RayWorker pid=12) "])
def test_a_prefix_of_every_line(prefix):
    printed = "".join(prefix + line for line in run(CHAIN).splitlines(keepends=True))
    found = find_traceback(printed)
    assert found.exception == "RuntimeError: while handling"
    assert found.text.count("Traceback (most recent call last)") >= 1


def test_a_header_glued_to_a_progress_bar():
    printed = run("int('x')")
    text = "\r  1%|          | 18/1752 [00:48<1:19:22,  2.75s/it]\r  2%|▏         | 20/1752 " + printed
    found = find_traceback(text)
    assert found.exception.startswith("ValueError: invalid literal")


def test_what_python_ignored_is_not_what_the_run_died_of():
    died = run("raise OSError('disk')")
    ignored = "Exception ignored in: <function x.__del__ at 0x7f>\n" + run("raise AttributeError('late')")
    assert find_traceback(died + ignored).exception == "OSError: disk"
    assert find_traceback(ignored) is None and find_tracebacks(ignored)[0].ignored


def test_first_and_last_of_several_threads():
    source = """
import threading, sys
def work(): raise MemoryError("drafter 0")
t = threading.Thread(target=work); t.start(); t.join()
raise SystemError("a worker died")
"""
    text = "step 5 loss 1.25\n" + run(source)
    assert find_first_traceback(text).exception == "MemoryError: drafter 0"
    assert find_first_traceback(text).text.startswith("Exception in thread Thread-1")
    assert find_traceback(text).exception == "SystemError: a worker died"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="needs ExceptionGroup")
def test_an_exception_group_is_taken_whole():
    source = """
def leaf(): raise ValueError("leaf")
try: leaf()
except ValueError as e: raise ExceptionGroup("two", [e, ExceptionGroup("inner", [KeyError("k")])])
"""
    printed = run(source)
    found = find_tracebacks("x\n" + printed)
    assert found[-1].text.endswith("+------------------------------------")
    assert "KeyError: 'k'" in found[-1].text


def test_a_spawned_process_tells_its_own_inside():
    text = """\
Traceback (most recent call last):
  File "train.py", line 253, in <module>
    args=(args,),
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "spawn.py", line 59, in _wrap
    fn(i, *args)
RuntimeError: inside
"""
    found = find_tracebacks(text)
    assert len(found) == 1 and found[0].exception == "RuntimeError: inside" and found[0].text == text.strip()


def test_a_log_that_ends_within_a_traceback():
    text = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n'
    found = find_traceback(text)
    assert found.text == text.strip() and found.exception is None


def test_caret_lines_belong_to_it():
    text = """\
Traceback (most recent call last):
  File "emit.py", line 4, in <module>
    o.write("%d %s"%(n,t))
            ~~~~~~~^~~~~~
ValueError: unsupported format character
"""
    assert find_traceback(text).text == text.strip()


def test_two_threads_that_print_at_once_are_not_believed():
    text = """\
Exception in thread Thread-1:
Traceback (most recent call last):
  File "threading.py", line 932, in _bootstrap_inner
Exception in thread Thread-2:
Traceback (most recent call last):
  File "threading.py", line 932, in _bootstrap_inner
    self.run()
"""
    assert [found.exception for found in find_tracebacks(text)] == [None, None]


def test_no_traceback():
    assert find_traceback("all is well\n") is None and find_traceback("") is None


@given(st.text(alphabet=st.sampled_from(list("Traceback (most recent call last):\n |+-'E:")), max_size=300))
def test_any_text_is_survived(text):
    for found in find_tracebacks(text + "\nTraceback (most recent call last):\n" + text):
        assert found.text


@given(st.text(max_size=200))
def test_plain_text_is_plain(text):
    plain = plain_text(text)
    assert not any((ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 for c in plain)
    plain.encode()
    assert "\n" not in one_line(text) and len(one_line(text)) <= 200


@given(st.lists(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126)), min_size=1))
def test_plain_lines_keep_printable_lines(lines):
    assert plain_lines("\n".join(lines)) == lines


def test_sequences_are_taken_out():
    assert plain_text("\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\x1b]52;c;aGk=\x1b\\y\x9b2Jz\u202e!") == "red xyz!"
    assert plain_text("10%\r20%\r\n30%\r") == "20%\n30%"
    assert plain_text(b"a\xffb".decode("utf-8", "surrogateescape")) == "a\ufffdb"


def test_a_sequence_that_is_never_closed_hides_no_other_line():
    assert plain_text("ok\n\x1b]0;title\nTraceback\n\x1bPx\n  boom") == "ok\n\nTraceback\n\n  boom"
    assert plain_text("a\u061cb\u2028c\u2029d") == "abcd"
