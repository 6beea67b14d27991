"""The command line: parse, call one operation, render, exit code. Imports of weight are made by the command that needs them."""

from __future__ import annotations


def main() -> int:
    return 0
