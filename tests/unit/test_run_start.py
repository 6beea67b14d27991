"""What a first word `python` comes to; decided on the target alone."""

from orchestrator.agent.far.start_record import resolve_python


def test_the_first_word_python_is_the_payloads():
    assert resolve_python(["python", "train.py"], "/root/venv/bin/python", "") == ["/root/venv/bin/python", "train.py"]
    assert resolve_python(["python3", "a.py"], "/root/venv/bin/python", "") == ["python3", "a.py"]


def test_without_one_it_is_whichever_there_is(tmp_path):
    assert resolve_python(["python", "a.py"], None, str(tmp_path)) == ["python3", "a.py"]
    (tmp_path / "python").touch(mode=0o755)
    assert resolve_python(["python", "a.py"], None, str(tmp_path)) == ["python", "a.py"]
