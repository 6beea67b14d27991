"""Python tracebacks in a log: whole, with everything they are chained to, each writer's by itself.

Rule: never cut a traceback. Too much is better than too little: its message goes on until something that
is clearly another line of the log. A stack whose rows two writers mixed is said to be mixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.probes import traceback_words as words
from orchestrator.probes.rows import Origin, Row, Told
from orchestrator.probes.spans import Span, Value
from orchestrator.probes.traceback_facts import Frame, Raised, Traceback


@dataclass(frozen=True)
class _Block:
    end: int
    exception_row: int | None
    message_end: int
    links: tuple[Raised, ...]
    leaf: int = 0
    is_whole: bool = True
    is_mixed: bool = False


def find_tracebacks(told: Sequence[Told]) -> tuple[Traceback, ...]:
    """Each chain is one; in the order in which they begin."""
    streams: dict[str, list[Told]] = {}
    for each in told:
        streams.setdefault(each.origin.stream, []).append(each)
    found: list[Traceback] = []
    for rows in streams.values():
        if any(words.MARK[:-1] in each.row.text or 'File "' in each.row.text for each in rows):
            found += _of_stream(rows)
    return tuple(sorted(found, key=lambda each: each.span.start))


def _of_stream(told: list[Told]) -> list[Traceback]:
    rows = [each.row for each in told]
    chains: list[list[tuple[int, _Block]]] = []
    index, end = 0, 0
    while index < len(rows):
        text = rows[index].text
        if words.MARK in text:
            block = _block(rows, told, index)
        elif "\u256d" in text and words.MARK[:-1] in text and (boxed := _boxed(rows, told, index)) is not None:
            block = boxed
        elif (head := words.NOTEBOOK.match(text)) is not None:
            block = _of_notebook(rows, told, index, head["type"])
        elif words.GROUP_FRAME.match(text) and (group := _group(rows, index, is_whole=False)) is not None:
            block = group
        elif _begins_within(rows, index):
            block = _stack(rows, told, index, index, max(0, _indent(text) - 2), is_whole=False)
            block = replace(block, is_whole=False)
        else:
            index += 1
            continue
        between = [row.text.strip() for row in rows[end:index]]
        chained = (
            bool(chains) and len(between) < 12 and all(words.CHAINED.match(text) for text in between) and any(between)
        )
        after = " ".join(between).strip()
        if chains and text.strip() == words.ORIGINAL and not any(between):
            chained, after = True, words.ORIGINAL
        if chains and chains[-1][-1][1].is_mixed and block.exception_row is None:
            block = replace(block, is_mixed=True)
        if chained:
            block = replace(block, links=(replace(block.links[0], after=after), *block.links[1:]))
            chains[-1].append((index, block))
        else:
            chains.append([(index, block)])
        index = end = max(block.end, index + 1)
    if len(chains) > 2 * words.MAX_TRACEBACKS:
        chains = [*chains[: words.MAX_TRACEBACKS], *chains[-words.MAX_TRACEBACKS :]]
    return [_traceback(told, chain) for chain in chains]


def _begins_within(rows: Sequence[Row], index: int) -> bool:
    """A stack whose header is before the log's begin, or got lost; not the frames of a dump of threads or a warning."""
    text = rows[index].text
    found = words.FRAME.match(text) if 'File "' in text else None
    if found is None or not text.startswith(" "):
        return False
    if found["function"] is None:  # what Python says of code that it cannot even read
        return any(words.UNREADABLE.match(row.text) for row in rows[index + 1 : index + 5])
    inner = " " * (_indent(text) + 1)
    return any(row.text.startswith(inner) for row in rows[index + 1 : index + 3])


def _traceback(told: list[Told], chain: list[tuple[int, _Block]]) -> Traceback:
    start = chain[0][0]
    end = chain[-1][1].end
    before = told[start - 1].row.text if start else ""
    announced = words.ANNOUNCED.match(before) is not None
    head = told[start - 1 if announced else start]
    links = tuple(link for _, block in chain for link in block.links)
    last = chain[-1][1]
    named = next((link for link in reversed(last.links) if link.exception), None)
    rows = [each.row for each in told[start - 1 if announced else start : end]]
    exception = None if last.exception_row is None else _last_exception(last)
    matched = words.EXCEPTION.match(exception or "")
    thread = None
    if announced and before.startswith("Exception in thread "):
        begin = len("Exception in thread ")
        name = before[begin:].split(":")[0].split(" (")[0].strip()
        thread = Value(name, head.row.span(begin, begin + len(name)))
    spans = {"text": Span(rows[0].span().start, max(rows[-1].span().end, rows[0].span().start + 1))}
    if exception and named is not None:
        spans.update({name: span for name, span in named.spans.items() if name in ("exception", "exception_type")})
    if head.origin.rank_at is not None:
        spans["rank"] = head.origin.rank_at
    return Traceback(
        text="\n".join([row.text for row in rows]).rstrip(),
        exception=exception,
        exception_type=matched["type"] if matched else None,
        ignored=before.startswith(words.IGNORED),
        links=links,
        cause=_cause(links, chain),
        rank=head.origin.rank,
        thread=thread,
        is_whole=all(block.is_whole for _, block in chain),
        is_mixed=any(block.is_mixed for _, block in chain),
        is_warned=_is_warned(told, start),
        spans=spans,
    )


def _is_warned(told: list[Told], start: int) -> bool:
    """By the row that announces it: the header's own, or the one before."""
    return any(words.WARNED.match(each.text) is not None for each in told[max(0, start - 1) : start + 1])


def _last_exception(block: _Block) -> str | None:
    named = [link.exception for link in block.links if link.exception]
    return named[-1].split("\n")[0] if named else None


def _cause(links: Sequence[Raised], chain: list[tuple[int, _Block]]) -> int:
    """The first one printed; but a wrapper's cause is what it holds, and of a worker's it is the worker's own."""
    original = [number for number, link in enumerate(links) if link.after == words.ORIGINAL and link.exception]
    if original:
        return original[-1]
    at = 0
    for _, block in chain:
        leaf = at + block.leaf
        if not words.WRAPPERS.match(links[leaf].exception_type or "") and (
            links[leaf].exception or leaf == len(links) - 1
        ):
            return leaf
        at += len(block.links)
    return max(0, len(links) - 1)


def _block(rows: list[Row], told: list[Told], start: int) -> _Block:
    """The traceback whose header is at `start`."""
    text = rows[start].text
    before = text[: text.index(words.MARK)]
    is_group = before.endswith("Exception Group ")
    before = before.removesuffix("Exception Group ")
    if is_group or "|" in before or "+" in before:
        group = _group(rows, start)
        if group is not None:
            return group
    if before.strip():
        following = rows[start + 1].text if start + 1 < len(rows) else ""
        if following.startswith(before):  # what stands before every row of one writer, like `host: `
            end = start
            while (
                end < len(rows)
                and rows[end].text.startswith(before)
                and (end == start or words.MARK not in rows[end].text)
            ):
                end += 1
            bare = [row.cut(len(before)) for row in rows[start:end]]
            block = _stack(bare, told[start:end], 0, 1, 0)
            return replace(
                block,
                end=start + block.end,
                message_end=start + block.message_end,
                exception_row=None if block.exception_row is None else start + block.exception_row,
            )
        frame_indent = _indent(following) if words.FRAME.match(following) else 2
        return _stack(rows, told, start, start + 1, max(0, frame_indent - 2))
    return _stack(rows, told, start, start + 1, len(before))


def _stack(
    rows: Sequence[Row], told: Sequence[Told], start: int, index: int, indent: int, *, is_whole: bool = True
) -> _Block:
    """From the first row of the stack on; its exception stands at `indent`."""
    frames: list[Frame] = []
    inner = " " * (indent + 1)
    blank = 0
    is_mixed = False
    exception_row: int | None = None
    while index < len(rows):
        text = rows[index].text
        if words.MARK in text or words.ANNOUNCED.match(text):
            is_mixed = True
            break
        if text.startswith(inner) or text.startswith("\t"):
            if 'File "' in text and (frame := _frame(rows[index])) is not None:
                frames.append(frame)
            index, blank = index + 1, 0
        elif not text.strip():
            blank += 1
            if blank > words.MAX_BLANK_ROWS:
                break
            index += 1
        elif (
            _names_exception(text[indent:])
            and text[:indent].strip() == ""
            and (words.SURELY.match(text[indent:]) is not None or not _goes_on(rows, index, inner))
        ):
            exception_row = index
            break
        elif _goes_on(rows, index, inner):
            index += 1  # a bar, another writer's row, the rest of a wrapped one
        else:
            break
    if exception_row is None:
        end = index - (blank if blank <= index - start - 1 else 0)
        link = _raised(rows, start, end, None, end, frames)
        return _Block(max(end, start + 1), None, end, (link,), 0, False, is_mixed)
    message_end = _message_end(rows, told, start, exception_row, indent)
    link = _raised(rows, start, message_end, exception_row, message_end, frames)
    return _Block(message_end, exception_row, message_end, (link,), 0, is_whole)


def _names_exception(text: str) -> bool:
    return words.EXCEPTION.match(text) is not None and not words.ANOTHER_LINE.match(text)


def _goes_on(rows: Sequence[Row], index: int, inner: str) -> bool:
    """The stack does, behind a few rows that are not of it: its next frame is there."""
    for row in rows[index + 1 : index + 1 + words.MAX_FOREIGN_ROWS]:
        if words.MARK in row.text or words.ANNOUNCED.match(row.text):
            return False
        if row.text.startswith(inner):
            return 'File "' in row.text or len(row.text) - len(row.text.lstrip()) > len(inner)
    return False


def _message_end(rows: Sequence[Row], told: Sequence[Told], start: int, exception_row: int, indent: int) -> int:
    index = last = exception_row + 1
    holds_table = "ChildFailedError" in rows[exception_row].text
    header_stamped = told[start].origin.is_stamped
    while index < len(rows) and index - exception_row < words.MAX_MESSAGE_ROWS:
        text = rows[index].text
        if told[index].origin.is_stamped and (not header_stamped or text[indent : indent + 1].strip()):
            break
        if text.startswith("=" * 20) and not holds_table:
            break
        if (
            words.MARK in text
            or words.ANOTHER_LINE.match(text[indent:])
            or (text.strip() and words.CHAINED.match(text.strip()))
        ):
            break
        index += 1
        if text.strip():
            last = index
    return last


def _raised(
    rows: Sequence[Row],
    start: int,
    end: int,
    exception_row: int | None,
    message_end: int,
    frames: list[Frame],
) -> Raised:
    exception = exception_type = None
    last_row = rows[max(start, end - 1)]
    spans = {"whole": Span(rows[start].span().start, max(last_row.span().end, rows[start].span().end))}
    if exception_row is not None:
        exception = "\n".join([row.text.strip() for row in rows[exception_row:message_end]]).strip()
        matched = words.EXCEPTION.match(rows[exception_row].text.strip())
        first, last = rows[exception_row], rows[max(exception_row, message_end - 1)]
        lead = len(first.text) - len(first.text.lstrip())
        spans["exception"] = Span(first.span(lead).start, max(last.span().end, first.span().end))
        if matched:
            exception_type = matched["type"]
            spans["exception_type"] = first.span(lead, lead + len(exception_type))
        if "from user code" in exception:
            told_frames = (_frame(row) for row in rows[exception_row:message_end] if 'File "' in row.text)
            frames = [*frames, *(frame for frame in told_frames if frame is not None)]
    own = next((frame for frame in reversed(frames) if not words.LIBRARY.search(frame.file)), None)
    return Raised(
        exception=exception,
        exception_type=exception_type,
        frame=frames[-1] if frames else None,
        own_frame=own,
        spans=spans,
    )


def _frame(row: Row) -> Frame | None:
    found = words.FRAME.match(row.text)
    if found is None:
        return None
    names = ("file", "line", "function") if found["function"] else ("file", "line")
    spans = {name: row.span(*found.span(name)) for name in names}
    return Frame(found["file"], int(found["line"]), found["function"], spans=spans)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _group(rows: list[Row], start: int, *, is_whole: bool = True) -> _Block | None:
    """An exception group is drawn as a tree: every row of it begins with `|` or `+`."""
    end = start + 1
    while end < len(rows) and words.GROUP_ROW.match(rows[end].text):
        end += 1
    if end == start + 1:
        return None
    bare = [_without_margin(row) for row in rows[start:end]]
    told = [Told(row, Origin()) for row in bare]
    links: list[Raised] = []
    index = 0
    leaf: int | None = None
    while index < len(bare):
        is_header = words.MARK in bare[index].text
        if not is_header and (index or is_whole):
            index += 1
            continue
        block = _stack(bare, told, index, index + is_header, 0)
        if leaf is None and is_header and block.links[0].exception and "Exception Group" not in bare[index].text:
            leaf = len(links)
        links += block.links
        index = max(index + 1, block.exception_row + 1 if block.exception_row is not None else block.end)
    if not links:
        return None
    named = any(link.exception for link in links)
    return _Block(
        end, start if named else None, end, tuple(links), len(links) - 1 if leaf is None else leaf, named and is_whole
    )


def _boxed(rows: list[Row], told: list[Told], start: int) -> _Block | None:
    """As rich draws it: a box of frames, its exception below."""
    frames: list[Frame] = []
    index = start + 1
    while index < len(rows) and "\u2502" in rows[index].text[:4]:
        bar = rows[index].text.index("\u2502") + 1
        found = words.BOXED_FRAME.match(rows[index].text, bar + 1)
        if found is not None:
            names = ("file", "line", "function") if found["function"] else ("file", "line")
            spans = {name: rows[index].span(*found.span(name)) for name in names}
            frames.append(Frame(found["file"], int(found["line"]), found["function"], spans=spans))
        index += 1
    if index >= len(rows) or "\u2570" not in rows[index].text[:4]:
        return None
    index += 1
    if index >= len(rows) or not _names_exception(rows[index].text):
        return _Block(index, None, index, (_raised(rows, start, index, None, index, frames),), 0, False)
    end = _message_end(rows, told, start, index, 0)
    return _Block(end, index, end, (_raised(rows, start, end, index, end, frames),))


def _of_notebook(rows: list[Row], told: list[Told], start: int, name: str) -> _Block:
    """As IPython prints it: the code around each frame, an arrow at its line; the header's exception at the end."""
    frames: list[Frame] = []
    index = start + 1
    while index < len(rows) and index - start < words.MAX_MESSAGE_ROWS and words.MARK[:-1] not in rows[index].text:
        text = rows[index].text
        if text.startswith(f"{name}: ") or text.rstrip() == name:
            end = _message_end(rows, told, start, index, 0)
            frames = [frame for frame in frames if "line" in frame.spans]
            return _Block(end, index, end, (_raised(rows, start, end, index, end, frames),))
        if (found := words.NOTEBOOK_FRAME.match(text)) is not None:
            spans = {group: rows[index].span(*found.span(group)) for group in found.groupdict() if found[group]}
            frames.append(Frame(found["file"], int(found["line"] or 0), found["function"], spans=spans))
        elif frames and "line" not in frames[-1].spans and (arrow := words.NOTEBOOK_LINE.match(text)) is not None:
            spans = {**frames[-1].spans, "line": rows[index].span(*arrow.span("line"))}
            frames[-1] = replace(frames[-1], line=int(arrow["line"]), spans=spans)
        index += 1
    frames = [frame for frame in frames if "line" in frame.spans]
    return _Block(index, None, index, (_raised(rows, start, index, None, index, frames),), 0, False)


def _without_margin(row: Row) -> Row:
    text = row.text
    at = 0
    while at < len(text) and text[at] in " |+-":
        at += 1
    bars = text.rfind("|", 0, at)
    if bars == -1:
        return row.cut(min(at, len(text)))
    return row.cut(min(bars + 2, len(text)))
