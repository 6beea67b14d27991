"""Keeps the test suite, and every Python it starts, from reaching any machine but this one.

Rule: only loopback, or a lab's own network namespace. A namespace counts as a lab's when the lab's record
(ORCH_LAB_RECORD, a file of ours) lists its inode, it is not the machine's own, and no default route leads out of it.

Held by an audit hook: connect and sendto of Python sockets; `ssh`, `sftp`, `scp`, `rsync`, `ssh-keyscan` started from
Python, whose real target `ssh -G` names without connecting. Not held: sockets made in C (gloo), a Python started with
-I, -E, -S or with an emptied environment, programs that a shell script file starts, name look-ups.
Runs on Python 3.8, standard library only.
"""

import json
import os
import re
import sys

SSH_PROGRAMS = ("ssh", "sftp", "scp", "rsync", "ssh-keyscan")
NETWORK_TOOLS = ("nc", "ncat", "netcat", "socat", "telnet", "curl", "wget")
BEFORE_A_COMMAND = ("exec", "then", "do", "if", "while", "until", "else", "!", "{", "command", "time")
SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
WRAPPERS = (
    "env",
    "sudo",
    "timeout",
    "nice",
    "nohup",
    "setsid",
    "stdbuf",
    "strace",
    "script",
    "unshare",
    "nsenter",
    "ip",
)
_resolving = False


class BlockedByGuard(RuntimeError):
    """A test tried to leave the machine. Not an OSError: nothing may mistake it for an unreachable host."""


def is_loopback(host):
    """Whether a literal address or `localhost` stays on this machine. Other names are not looked up."""
    import ipaddress

    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    host = host.strip("[]").partition("%")[0].lower()
    if host in ("localhost", "", "0.0.0.0", "::"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def recorded_inodes(environment):
    """The namespaces that the lab's record lists; none if the record is missing or not ours."""
    path = environment.get("ORCH_LAB_RECORD")
    if not path:
        return frozenset()
    try:
        with open(path, encoding="utf-8") as stream:
            if os.fstat(stream.fileno()).st_uid != os.getuid():
                return frozenset()
            inodes = json.load(stream)["network_namespace_inodes"]
        return frozenset(inode for inode in inodes if isinstance(inode, int)) - machine_inodes()
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def machine_inodes():
    """The machine's own namespace, where it can be read."""
    try:
        return {os.stat("/proc/1/ns/net").st_ino}
    except OSError:
        return set()


def has_default_route(table):
    """Whether a /proc/net/route text leads somewhere for any address."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return any(len(row) > 7 and row[1] == "00000000" and row[7] == "00000000" for row in rows)


def in_lab(environment=None):
    """Whether this thread is inside a lab's network namespace."""
    inodes = recorded_inodes(os.environ if environment is None else environment)
    if not inodes:
        return False
    try:
        inode = os.stat("/proc/thread-self/ns/net").st_ino
        with open("/proc/thread-self/net/route", encoding="ascii") as stream:
            return inode in inodes and not has_default_route(stream.read())
    except OSError:
        return False


def check_address(sock, address):
    """For connect and sendto. Raises BlockedByGuard."""
    import socket

    if sock.family not in (socket.AF_INET, socket.AF_INET6) or not isinstance(address, tuple):
        return
    if not is_loopback(address[0]) and not in_lab():
        raise BlockedByGuard("the tests may not connect to %s" % (address[0],))


def check_command(argv, environment=None, depth=0):
    """Raises BlockedByGuard when argv would start an ssh to another machine."""
    words = [os.fsdecode(word) for word in argv]
    environment = os.environ if environment is None else environment
    if depth > 5:
        raise BlockedByGuard("too many commands in one another: %r" % (words,))
    for position, word in enumerate(words):
        name = os.path.basename(word)
        if name in SHELLS:
            for script in words[position + 1 :]:
                if re.search(r"\b(ssh|sftp|scp|rsync)\b", script):
                    _check_script(script, environment, depth)
            continue
        if name == "unshare" and any(_asks_for_network(option) for option in words[position + 1 :]):
            return  # a new namespace has nothing to reach
        if name == "nsenter" and _enters_lab(words[position + 1 :], environment):
            return
        if name in SSH_PROGRAMS:
            if not in_lab(environment):
                _check_ssh(name, words[position + 1 :], environment, depth)
            return
        if position == 0 and name not in WRAPPERS:
            return


def _asks_for_network(option):
    return option.startswith("--net") or (option[:1] == "-" and option[1:2] != "-" and "n" in option)


def _enters_lab(options, environment):
    for position, option in enumerate(options):
        path = None
        if option.startswith("--net="):
            path = option.partition("=")[2]
        elif option in ("--target", "-t") and position + 1 < len(options):
            path = "/proc/%s/ns/net" % options[position + 1]
        if path:
            try:
                if os.stat(path).st_ino in recorded_inodes(environment):
                    return True
            except OSError:
                pass
    return False


def _check_script(script, environment, depth):
    import shlex

    lexer = shlex.shlex(script, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        raise BlockedByGuard("cannot tell where this script's ssh leads: %r" % (script,)) from None
    command = []
    for word in [*words, ";"]:
        if word and set(word) <= set(";&|()<>\n"):
            if command:
                _refuse_variables(command)
                check_command(command, environment, depth + 1)
            command = []
        elif command or not (word in BEFORE_A_COMMAND or re.match(r"\w+=", word)):
            command.append(word)


def _refuse_variables(command):
    starts_ssh = any(os.path.basename(word) in SSH_PROGRAMS for word in command)
    if starts_ssh and any("$" in word or "`" in word for word in command):
        raise BlockedByGuard("cannot tell where this ssh leads: %r" % (command,))


def _check_ssh(program, arguments, environment, depth):
    if program == "ssh":
        if not any(word in ("-V", "-Q", "-G") for word in arguments):
            _check_resolved(arguments, environment, depth)
        return
    passed_on, operands = _split_options(program, arguments)
    for operand in operands:
        for host in _hosts_of(program, operand):
            if program == "ssh-keyscan":
                if not is_loopback(host):
                    raise BlockedByGuard("the tests may not scan %s" % host)
            else:
                _check_resolved([*passed_on, host], environment, depth)


def _split_options(program, arguments):
    """(options that ssh understands, operands)."""
    import shlex

    takes_value = {"ssh-keyscan": "fOpTt", "rsync": "efBTM", "sftp": "BbcDFiJlloPRSsX", "scp": "cDFiJloPSX"}[program]
    passed_on, operands, waiting = [], [], list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            operands.extend(waiting)
            break
        if not word.startswith("-") or word == "-":
            operands.append(word)
            continue
        if word.startswith("--rsh="):
            passed_on = shlex.split(word.partition("=")[2])[1:]
        elif not word.startswith("--") and word[-1] in takes_value and waiting:
            value = waiting.pop(0)
            if program == "rsync" and word[-1] == "e":
                passed_on = shlex.split(value)[1:]
            elif program in ("sftp", "scp") and word[-1] in "FJio":
                passed_on += ["-" + word[-1], value]
        elif program in ("sftp", "scp") and word[1:2] in ("F", "J", "o") and len(word) > 2:
            passed_on.append(word)
    return passed_on, operands


def _hosts_of(program, operand):
    """The hosts that an operand names: none for a local path."""
    if program == "ssh-keyscan":
        return operand.split(",")
    if program == "sftp":
        return [operand if "://" in operand else operand.partition(":")[0]]
    if "://" in operand:
        return [operand.partition("://")[2].partition("/")[0].partition(":")[0]]
    head, colon, _ = operand.partition(":")
    return [head] if colon and "/" not in head else []


def _check_resolved(arguments, environment, depth):
    """Ask ssh itself where it would go (its files, aliases, jumps), which connects nowhere."""
    import subprocess

    global _resolving
    _resolving = True
    try:
        answer = subprocess.run(
            ["ssh", "-G", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(environment),
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BlockedByGuard("cannot tell where ssh would go: %s" % error) from None
    finally:
        _resolving = False
    if answer.returncode != 0:
        return  # ssh will refuse the same words in the same way
    found = {}
    for line in answer.stdout.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, value)
    proxy = found.get("proxycommand", "none")
    if proxy != "none":
        shown = {"%p": "22", "%r": "root", "%%": "%", "%h": found.get("hostname", "?")}
        _check_script(re.sub("%.", lambda match: shown.get(match[0], "localhost"), proxy), environment, depth)
        tool = os.path.basename(proxy.split()[0]) if proxy.split() else ""
        if tool not in (*NETWORK_TOOLS, *SSH_PROGRAMS):
            return  # the connection is whatever that program makes of it, and a Python one is guarded itself
    if not is_loopback(found.get("hostname", "?")):
        raise BlockedByGuard("the tests may not start ssh to %s" % found.get("hostname"))
    jumps = found.get("proxyjump", "none")
    if jumps != "none":
        config = [word for pair in _config_option(arguments) for word in pair]
        for jump in jumps.split(","):
            host = jump.rpartition("@")[2]
            host = host if host.count(":") != 1 else host.partition(":")[0]
            _check_resolved([*config, host], environment, depth + 1)


def _config_option(arguments):
    for position, word in enumerate(arguments):
        if word == "-F" and position + 1 < len(arguments):
            yield ("-F", arguments[position + 1])
        elif word.startswith("-F") and len(word) > 2:
            yield ("-F", word[2:])


def hook(event, arguments):
    if event in ("socket.connect", "socket.sendto"):
        check_address(*arguments)
    elif _resolving:
        return
    elif event == "subprocess.Popen":
        executable, argv, _, environment = arguments
        argv = [argv] if isinstance(argv, (str, bytes)) else list(argv)
        check_command([executable or argv[0], *argv[1:]], _plain(environment))
    elif event in ("os.exec", "os.posix_spawn"):
        path, argv, environment = arguments
        check_command([path, *list(argv)[1:]], _plain(environment))
    elif event == "os.system":
        check_command(["sh", "-c", arguments[0]])


def _plain(environment):
    if not environment:
        return None
    return {os.fsdecode(name): os.fsdecode(value) for name, value in dict(environment).items()}


def install():
    """Once a process; it cannot be taken off again."""
    if not getattr(sys, "_orch_network_guard", False):
        sys._orch_network_guard = True
        sys.addaudithook(hook)
