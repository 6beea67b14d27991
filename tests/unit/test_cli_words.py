"""What the command line takes for a number, and what a terminal gets to see of a log. Pure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cli import launch_command, parsers
from orchestrator.cli.logs_command import terminal_sink
from orchestrator.cli.main import main
from orchestrator.cli.output import Output
from orchestrator.cli.parsers import OUTCOMES, READ_KINDS, SORTS, build_parser
from orchestrator.errors import OrchError
from orchestrator.ledger import run_query
from orchestrator.operations.readers import READERS


@pytest.mark.parametrize(
    "words",
    [
        ["exec", "--timeout", "-1", "--", "true"],
        ["exec", "--timeout", "nan", "--", "true"],
        ["stop", "--timeout", "inf"],
        ["launch", "--wait", "--timeout", "x"],
        ["logs", "-n", "-5"],
        ["logs", "-n", "1.5"],
    ],
)
def test_a_number_that_means_nothing_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(words)
    assert ended.value.code == 2
    assert "invalid" in capsys.readouterr().err


def test_ctrl_c_while_the_words_are_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("orchestrator.cli.main.build_parser", interrupted)
    assert main(["hosts"]) == 130
    assert "orch: interrupted. Nothing of this command runs on." in capsys.readouterr().err


def test_numbers_that_mean_something() -> None:
    assert build_parser().parse_args(["stop", "--timeout", "1.5"]).timeout == 1.5
    assert build_parser().parse_args(["logs", "-n", "0"]).lines == 0


def test_help_names_each_kind_of_output_that_can_be_read() -> None:
    assert tuple(READERS) == READ_KINDS


def test_help_names_each_outcome_and_order_of_runs() -> None:
    assert (OUTCOMES, SORTS) == (run_query.OUTCOMES, run_query.SORTS)


def test_a_terminal_sees_the_last_line_that_has_no_end(capsys: pytest.CaptureFixture[str]) -> None:
    write, finish = terminal_sink()
    write(b"one\nlast \x1b[3")
    write(b"1mline: Kill\xc3")
    finish()
    assert capsys.readouterr().out == "one\nlast line: Kill\ufffd\n"
    write, finish = terminal_sink()
    write(b"one\n")
    finish()
    assert capsys.readouterr().out == "one\n"


def test_no_verb_can_let_a_control_sequence_through(capsys: pytest.CaptureFixture[str]) -> None:
    output, title = Output(verbose=True), "\x1b]0;title\x07"
    output.result(f"{title}result \x1b[31mred\udcff")
    output.note(f"{title}note")
    output.error(OrchError(f"{title}what", evidence=f"10%\r{title}evidence", way_out=f"{title}way out"))
    said = capsys.readouterr()
    assert said.out == "result red\ufffd\n"
    assert said.err == "note\norch: what\n    evidence\n  -> way out\n"


def test_an_interrupted_start_is_not_said_to_be_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("hosts:\n  box: {transport: local, root: /nowhere}\n")

    async def launch(*_: object, on_starting: Callable[[], None], **__: object) -> None:
        on_starting()
        raise KeyboardInterrupt

    monkeypatch.setattr(launch_command, "launch", launch)
    assert main(["-i", str(inventory), "launch"]) == 130
    assert "may have been started on box" in capsys.readouterr().err


def test_a_setting_without_set_gets_the_command_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "--set", "steps=6", "target.steps=4"]) == 2
    assert "orch launch --set steps=6 --set target.steps=4" in capsys.readouterr().err


def test_only_the_named_commands_options_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    for name in ("runs", "launch"):
        monkeypatch.setattr(parsers, f"_add_{name}", lambda parser: made.append(parser.prog))
    build_parser().parse_args(["-i", "launch", "runs"])
    assert made == ["orch runs"]


@pytest.mark.parametrize(
    ("line", "usage"),
    [
        ("status --wach", "usage: orch status "),
        ("launch --sett steps=5", "usage: orch launch "),
        ("cache show --deep", "usage: orch cache show "),
        ("lab up --id x", "usage: orch lab up "),
    ],
)
def test_an_option_that_is_not_there_is_answered_with_those_that_are(
    line: str, usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args(line.split())
    told = capsys.readouterr().err
    assert ended.value.code == 2 and told.startswith(usage) and "unrecognized arguments: --" in told
