"""The words and shapes of Python's tracebacks."""

from __future__ import annotations

import re

MARK = "Traceback (most recent call last):"
ORIGINAL = "Original " + MARK
"""Torch's, within the message of `KeyError: Caught KeyError in DataLoader worker process 3.`: the worker's own."""
EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,200})(?::(?:\s(?P<message>.*))?)?\s*$", re.DOTALL)
SURELY = re.compile(
    r"(?:[a-z_]\w*\.)+[A-Z]\w*(?::|\s*$)|\w*(?:Error|Exception|Interrupt|Exit|Unsupported|Group)(?::|\s*$)"
)
FRAME = re.compile(
    r'\s*File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9})(?:, in (?P<function>\S.{0,300}?)(?: {2,}.*)?$)?'
)
CHAINED = re.compile(
    r"(?:During handling of the above exception, another exception occurred:"
    r"|The above exception was the direct cause of the following exception:"
    r"|-- Process (?P<process>\d{1,9}) terminated with the following error:"
    r'|"""|)\s*$'
)
UNREADABLE = re.compile(r"(?:Syntax|Indentation|Tab)Error: ")
BOXED_FRAME = re.compile(r"(?P<file>[\w./<>~-]{1,400}):(?P<line>\d{1,9}) in ?(?P<function>[^\s\u2502]{1,200})?")
NOTEBOOK = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,200}) {2,}Traceback \(most recent call last\)\s*$")
"""What IPython puts above its stack: `ValueError                   Traceback (most recent call last)`."""
NOTEBOOK_FRAME = re.compile(
    r"(?:File )?\[?(?P<file>Cell In ?\[\d{1,6}\]|<[^<>]{1,80}>|[/~.\w][\w./<>~-]{0,400}\.py)\]?(?:\(https?://\S{1,80}\))?"
    r"(?::|, line )?(?P<line>\d{1,9})?(?:,? in (?P<function>[^\s(]{1,200}).*)?\s*$"
)
NOTEBOOK_LINE = re.compile(r"-{1,5}> ?(?P<line>\d{1,9})\b")
GROUP_FRAME = re.compile(r'\s*\| +File "')
GROUP_ROW = re.compile(r"\s*[|+]")
ANNOUNCED = re.compile(r"Exception in thread |Exception ignored in\b|Process \S{1,80}:\s*$")
IGNORED = "Exception ignored in"
# What a message would not hold at the start of a line.
ANOTHER_LINE = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d"  # a timestamp
    r"|\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b"
    r"|[EWIF]\d{4} \d\d:\d\d:\d\d"  # glog
    r"|\[(?:rank\d+\]:)?\[?[EWIF]\d{0,4} .{0,40}\.cpp:\d"  # c10d
    r"|\s*\d+%\|"  # a progress bar
    r"|\{['\"]"  # a line of metrics
    r"|(?:step|epoch|iter)\b.*\d"
    r"|\[orch\] "
    r"|Exception in thread |Exception ignored in\b"
    r"|Fatal Python error:|Killed\s*$"
    r"|\d{1,9} -{16}",  # the next of a group
    re.IGNORECASE,
)
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|/bin/\w+$|/torch/|^<|/functorch/")
WRAPPERS = re.compile(
    r"(?:.*\.)?(?:ChildFailedError|ProcessRaisedException|ProcessExitedException|RemoteTraceback|CalledProcessError"
    r"|(?:Base)?ExceptionGroup|RayTaskError\w*|WorkerCrashedError)$"
)
"""They tell that another one failed: whose own traceback, where there is one, is the cause."""
MAX_MESSAGE_ROWS = 400
MAX_TRACEBACKS = 128
"""Of one writer so many of the first and of the last are told."""
MAX_FOREIGN_ROWS = 3
MAX_BLANK_ROWS = 2
WARNED = re.compile(r"--- Logging error ---|(?:\S{1,200}:\d+: )?\w{0,40}Warning: |\W{0,3}WARN(?:ING)?\b")
"""What the row before a traceback begins with that a logger told as no more than a warning."""
