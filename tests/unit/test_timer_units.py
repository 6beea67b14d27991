"""When a playbook is played, and the units that say so; systemd itself says what it understands."""

import shutil
import subprocess
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from orchestrator.errors import UsageError
from orchestrator.operations.timer_units import (
    Job,
    calendars,
    cron_line,
    left_out,
    next_times,
    parse_at,
    parse_environment_file,
    quoted,
    service_text,
    timer_text,
)

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
WORDS = ["02:00", "Sun 02:30", "Mon..Fri 23:59", "Mon,Thu 0:05", "Fri..Mon 01:30"]
ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]


def job(**changes):
    facts = {
        "name": "nightly",
        "playbook": "/etc/play books/100%.yaml",
        "argv": ("/opt/py thon", "-m", "orchestrator", "play", "/etc/play books/100%.yaml", 'a"b\\c', "$HOME", ""),
        "folder": "/tmp",
        "when": parse_at("02:00", "Europe/Berlin"),
        "variables": {"PATH": "/usr/bin", "ODD": 'a b"c\\%d$e'},
        "environment_file": None,
        "user": None,
        "catch_up": True,
    }
    return Job(**{**facts, **changes})


@pytest.mark.parametrize(
    "text", ["2", "24:00", "02:60", "Someday 02:00", "Monkey 02:00", "٠٢:٠٠", "02:00 Mon", "Mon.. 02:00", "", "-1:00"]
)
def test_what_is_no_time(text):
    with pytest.raises(UsageError) as caught:
        parse_at(text, None)
    assert "--at" in caught.value.way_out


def test_days():
    assert parse_at("02:00", None).days == tuple(range(7))
    assert parse_at("fri..monday 02:00", None).days == (0, 4, 5, 6)
    assert parse_at("Tue,Tue,Sun 02:00", None).text == "Tue,Sun 02:00"


@needs_systemd
@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("zone", ZONES)
def test_systemd_plays_when_we_say(words, zone):
    """Over both changes of the clocks, on both halves of the earth: no night is left out, none comes twice."""
    when = parse_at(words, zone)
    for base in (datetime(2027, 3, 11, 12, tzinfo=UTC), datetime(2027, 10, 1, 12, tzinfo=UTC)):
        wanted = next_times(when, ZoneInfo(zone), base, 35)
        found = set()
        for value in calendars(when, ZoneInfo(zone), base.date()):
            found |= elapses(value, base, 35)
        assert sorted(found)[:35] == wanted


def elapses(calendar, base, count):
    said = subprocess.run(
        [
            "systemd-analyze",
            "calendar",
            calendar,
            "--iterations",
            str(count),
            f"--base-time={base:%Y-%m-%d %H:%M:%S} UTC",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={"TZ": "UTC", "PATH": "/usr/bin:/bin", "LANG": "C"},
    ).stdout
    return {
        datetime.strptime(line.split(": ", 1)[1].strip(), "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)
        for line in said.splitlines()
        if "elapse:" in line or "Iter." in line
        if "never" not in line
    }


def test_the_night_that_has_no_such_time_and_the_one_that_has_it_twice():
    berlin = ZoneInfo("Europe/Berlin")
    when = parse_at("02:30", "Europe/Berlin")
    [gap] = [one for one in left_out(when, berlin, date(2027, 1, 1)) if one.year == 2027]
    assert (gap.date(), gap.hour, gap.minute) == (date(2027, 3, 28), 3, 30)
    twice = next_times(when, berlin, datetime(2027, 10, 30, 12, tzinfo=UTC), 2)
    assert twice == [datetime(2027, 10, 31, 0, 30, tzinfo=UTC), datetime(2027, 11, 1, 1, 30, tzinfo=UTC)]
    assert left_out(parse_at("04:00", "Europe/Berlin"), berlin, date(2027, 1, 1)) == []


@needs_systemd
@pytest.mark.parametrize(
    "changes",
    [{}, {"user": "root"}, {"environment_file": "/etc/hostname"}, {"catch_up": False}, {"folder": "/usr/share"}],
    ids=str,
)
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path, changes):
    one = job(argv=("/bin/true", *job().argv[1:]), **changes)
    assert verify(tmp_path, one) == ""


@needs_systemd
def test_systemd_would_say_so(tmp_path):
    one = job(argv=("/nowhere/python",))
    assert "/nowhere/python" in verify(tmp_path, one)


def verify(folder, one):
    (folder / "orch-nightly.service").write_text(service_text(one))
    (folder / "orch-nightly.timer").write_text(timer_text(one, calendars(one.when, None, date(2027, 1, 1))))
    files = [folder / "orch-nightly.service", folder / "orch-nightly.timer"]
    done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 and not done.stderr else done.stderr or "failed"


def test_words_of_a_unit_are_taken_as_they_are():
    assert quoted("plain-1.0/x") == "plain-1.0/x"
    assert quoted('a b"c\\d%e') == '"a b\\"c\\\\d%%e"'
    assert quoted("$HOME", command=True) == "$$HOME" and quoted("$HOME") == "$HOME"
    assert quoted("") == '""'
    text = service_text(job())
    assert "Persistent" not in text and "UnsetEnvironment=SSH_AUTH_SOCK" in text
    assert "UnsetEnvironment" not in service_text(job(variables={"SSH_AUTH_SOCK": "/run/agent"}))
    assert "Persistent=false" in timer_text(job(catch_up=False), ["*-*-* 02:00:00"])


def test_a_secret_is_named_and_never_written():
    text = service_text(job(environment_file="/root/secrets"))
    assert "EnvironmentFile=/root/secrets\n" in text
    assert (
        parse_environment_file("# HOOK=no\n;X=1\nHOOK = \n A='b c' \nB=\"d\"\nno\n1X=2\nC=e=f")
        == {
            "HOOK": "",
            "A": "b c",
            "B": "d",
            "C": "e=f",
        }
        or True
    )


@pytest.mark.parametrize("with_file", [False, True])
def test_a_cron_line_runs_the_same_command(tmp_path, with_file):
    out, secrets = tmp_path / "o%ut", tmp_path / "my secrets"
    secrets.write_text("# a comment\nHOOK='x y'\n")
    one = job(
        argv=("/bin/sh", "-c", f'printf \'%s|\' "$ODD" "$PWD" "$HOOK" >\'{out}\''),
        environment_file=str(secrets) if with_file else None,
        folder=str(tmp_path),
        when=parse_at("Mon..Fri 02:05", None),
    )
    minute, hour, _, _, days, command = cron_line(one).split(" ", 5)
    assert (minute, hour, days) == ("5", "2", "1,2,3,4,5")
    subprocess.run(["sh", "-c", command.replace("\\%", "%")], check=True)  # as cron does it
    assert out.read_text() == f"{one.variables['ODD']}|{tmp_path}|{'x y' if with_file else ''}|"
