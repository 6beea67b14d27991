"""A webhook and a command, told for real: a server on loopback that answers as it is told to."""

import asyncio
import contextlib
import errno
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orchestrator.operations import notify as module
from orchestrator.operations.notify import Message, notify

SECRET = "T0-s3cr3t-t0ken"
MESSAGE = Message("nightly failed\ngate: tau 3.1", {"outcome": "failed", "run_id": "r1", "play": None})


class Hook:
    """answers: what to do with one request after the other; the last one goes on. "hang" answers nothing."""

    def __init__(self, *answers):
        self.got = []
        self.over = threading.Event()
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                known = self.path == f"/hook/{SECRET}"
                hook.got.append((self.path, self.headers["Content-Type"], json.loads(body)))
                answer = answers[min(len(hook.got), len(answers)) - 1]
                if answer == "hang":
                    hook.over.wait(30)
                    return
                if answer == "drip":
                    with contextlib.suppress(OSError):
                        while not hook.over.wait(0.05):
                            self.wfile.write(b"H")
                    return
                self.send_response(answer if known else 403, f"no {self.path}")
                if answer == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST  # so that a followed redirect would be seen

            def log_message(self, *words):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/hook/{SECRET}"


@pytest.fixture
def hook(request, monkeypatch):
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    hook = Hook(*getattr(request, "param", (200,)))
    monkeypatch.setenv("HOOK", hook.url)
    yield hook
    hook.over.set()
    hook.server.shutdown()
    hook.server.server_close()


def tell(**options):
    began = time.monotonic()
    told = asyncio.run(notify(MESSAGE, **options))
    assert SECRET not in repr(told)
    return told, time.monotonic() - began


def test_a_webhook_gets_one_document(hook):
    told, _ = tell(webhook="env:HOOK")
    assert told.said == ("told the webhook at 127.0.0.1",) and told.warnings == ()
    [(_, kind, document)] = hook.got
    assert kind == "application/json"
    assert document == {"text": MESSAGE.text, "content": MESSAGE.text, **MESSAGE.facts}


@pytest.mark.parametrize("hook", [(500, 200)], indirect=True)
def test_what_failed_is_tried_once_more(hook):
    told, _ = tell(webhook="env:HOOK")
    assert told.said and not told.warnings and len(hook.got) == 2


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        ((500,), "it answered 500"),
        ((302,), "it answered 302"),
        (("hang",), "no answer within 0.3 s"),
        (("drip",), "no answer within 0.3 s"),
    ],
    indirect=["hook"],
    ids=["fails", "leads elsewhere", "hangs", "never ends its answer"],
)
def test_a_webhook_that_does_not_take_it_is_a_warning_in_time(hook, why):
    told, took_s = tell(webhook="env:HOOK", webhook_limit_s=0.3)
    assert told.said == () and why in told.warnings[0] and "127.0.0.1" in told.warnings[0]
    assert len(hook.got) == 2 and all(path.startswith("/hook/") for path, _, _ in hook.got)
    assert took_s < 5


def test_a_wrong_token_is_a_warning(hook, monkeypatch):
    monkeypatch.setenv("HOOK", hook.url + "wrong")
    told, _ = tell(webhook="env:HOOK")
    assert "it answered 403" in told.warnings[0]


def test_nobody_listens(monkeypatch, hook):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HOOK", f"http://127.0.0.1:{free.getsockname()[1]}/hook/{SECRET}")
        told, _ = tell(webhook="env:HOOK")
    assert "ConnectionRefusedError" in told.warnings[0]


@pytest.mark.parametrize("url", ["ftp://x/" + SECRET, "http:///" + SECRET, SECRET, f"http://[{SECRET}", "file:///etc"])
def test_what_is_no_address_is_a_warning_that_does_not_show_it(url, monkeypatch, hook):
    monkeypatch.setenv("HOOK", url)
    told, _ = tell(webhook="env:HOOK")
    assert "no http(s) address" in told.warnings[0] and not hook.got


@pytest.mark.parametrize("ending", [f"/{SECRET} x", f"/{SECRET}\nX: y", f"/é/{SECRET}", f":{SECRET}", f"?{SECRET}\t"])
def test_an_address_that_cannot_be_asked_is_not_shown(ending, monkeypatch, hook):
    monkeypatch.setenv("HOOK", f"http://127.0.0.1{ending}")
    told, _ = tell(webhook="env:HOOK")
    assert "the webhook at 127.0.0.1 was not told" in told.warnings[0] and not hook.got


def test_halves_of_characters_and_a_full_disk_keep_nobody_from_being_told(tmp_path, monkeypatch, hook):
    def full(*words, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.tempfile, "TemporaryFile", full)
    out = tmp_path / "out"
    argv = ["sh", "-c", f'{{ cat; echo "$ORCH_WHY"; }} >{out}']
    told = asyncio.run(notify(Message("a\udcffb", {"why": "c\ud800"}), command=argv, webhook="env:HOOK"))
    assert told.warnings == () and len(told.said) == 2
    assert out.read_text() == "a?b\nc?\n" and len(hook.got) == 1


def test_a_secret_in_a_file_and_one_that_others_may_read(tmp_path, hook):
    file = tmp_path / "hook"
    file.write_text(hook.url + "\n")
    file.chmod(0o600)
    assert tell(webhook=f"file:{file}")[0].warnings == ()
    file.chmod(0o644)
    told, _ = tell(webhook=f"file:{file}")
    assert told.said and "chmod 600" in told.warnings[0]
    for reference, why in [
        (f"file:{tmp_path}/none", "No such file"),
        (f"file:{tmp_path}", "Is a directory"),
        ("env:NOT_THERE", "has no NOT_THERE"),
        (hook.url, "env:NAME or file:PATH"),
    ]:
        told, _ = tell(webhook=reference)
        assert told.said == () and why in told.warnings[0]
    assert len(hook.got) == 2 and stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_command_gets_the_text_and_the_facts(tmp_path):
    out = tmp_path / "out"
    code = f"import os, sys; open({str(out)!r}, 'w').write(sys.stdin.read() + os.environ['ORCH_RUN_ID'])"
    told, _ = tell(command=[sys.executable, "-c", code])
    assert told.said == (f"told {sys.executable}",) and not told.warnings
    assert out.read_text() == MESSAGE.text + "\nr1"


def test_what_a_command_prints_of_its_secrets_is_not_told(monkeypatch):
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    monkeypatch.setenv("CHAT_TOKEN", SECRET)
    monkeypatch.setenv("CHAT_TOKEN_LONG", SECRET + "-more")
    monkeypatch.setenv("CHAT_URL", "https://ann:pass-of-ann@chat.example")
    monkeypatch.setenv("CHAT_KEY_ID", "4")
    told, _ = tell(command=["sh", "-c", 'echo "403 $CHAT_TOKEN $CHAT_TOKEN_LONG $CHAT_URL" in $PWD; exit 4'])
    said = f"403 [CHAT_TOKEN] [CHAT_TOKEN_LONG] [CHAT_URL] in {os.getcwd()}"
    assert told.warnings == (f"sh was not told: it ended with exit code 4: {said}",)


def test_commands_that_fail_hang_or_leave_a_child_are_warnings_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    told, _ = tell(command=["sh", "-c", "echo no such channel >&2; exit 4"])
    assert told.warnings == ("sh was not told: it ended with exit code 4: no such channel",)
    told, _ = tell(command=["/nowhere/tell"])
    assert "No such file" in told.warnings[0]
    pid = tmp_path / "pid"
    told, took_s = tell(command=["sh", "-c", f"echo $$ >{pid}; sleep 60"], command_limit_s=0.4)
    assert "did not end within 0.4 s" in told.warnings[0] and took_s < 10
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    told, took_s = tell(command=["sh", "-c", "sleep 2 & exit 0"])
    assert told.said and took_s < 1.5


def test_what_a_step_on_this_machine_prints_of_its_secrets_is_not_recorded(tmp_path):
    playbook = tmp_path / "night.yaml"
    step = {"argv": ["sh", "-c", "echo sent with $CHAT_TOKEN"], "where": "controller"}
    playbook.write_text(json.dumps({"steps": [{"run": step}]}))
    (tmp_path / "inventory.yaml").write_text("hosts:\n  box: {transport: local, root: /nowhere}\n")
    argv = [sys.executable, "-m", "orchestrator", "play", "-i", tmp_path / "inventory.yaml", playbook]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "CHAT_TOKEN": SECRET}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    (record,) = tmp_path.glob("orch/plays/*/*.jsonl")
    assert done.returncode == 0 and "sent with [CHAT_TOKEN]" in record.read_text()
    assert SECRET not in record.read_text() + done.stdout + done.stderr


def test_a_play_that_cannot_begin_tells_the_webhook_why(tmp_path, hook):
    playbook = tmp_path / "nightly.yaml"
    playbook.write_text("steps:\n  - depoly:\n")
    (tmp_path / "inventory.yaml").write_text("hosts:\n  box: {transport: local, root: /nowhere}\n")
    argv = [
        sys.executable,
        "-m",
        "orchestrator",
        "play",
        "-i",
        tmp_path / "inventory.yaml",
        playbook,
        "--tell",
        "env:HOOK",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "depoly" in done.stderr
    [(_, _, document)] = hook.got
    assert document["outcome"] == "refused" and "was not played" in document["text"] and "depoly" in document["text"]
    subprocess.run([*argv, "--dry-run"], capture_output=True, check=False)
    assert len(hook.got) == 1  # whoever only looks is told on the screen
