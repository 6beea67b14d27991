"""The command line: parse, call one operation, render, exit code. Heavy imports happen inside the command."""

from __future__ import annotations


def main() -> int:
    return 0
