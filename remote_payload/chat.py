"""A conversation to token ids, and which of them the assistant wrote.

Rule: what is learned is exactly what serving would have the target write: from where the template asks for an answer up
to the token that ends it. An answer that the template shows otherwise later (thinking cut out of earlier turns) is not.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from samples import DataError, Unusable
from tokens import Vocabulary

Messages = Sequence[Dict[str, str]]


@dataclass(frozen=True)
class ChatFormat:
    """How conversations are written out. Another template or thinking flag is another distribution."""

    template: Optional[str]
    thinking: bool

    @property
    def identity(self) -> Dict[str, Any]:
        digest = hashlib.sha256(self.template.encode()).hexdigest() if self.template else None
        return {"chat_template_sha256": digest, "thinking": self.thinking}


def chat_format(vocabulary: Vocabulary, template_file: str, thinking: bool) -> ChatFormat:
    """Raises DataError."""
    if not template_file:
        return ChatFormat(vocabulary.tokenizer.chat_template, thinking)
    try:
        return ChatFormat(Path(template_file).read_text(encoding="utf-8"), thinking)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"data.chat_template: {error}") from None


def render(vocabulary: Vocabulary, form: ChatFormat, messages: Messages, *, ask: bool) -> str:
    """ask: with what makes the target answer behind it. Raises DataError when there is no template."""
    if form.template is None:
        raise DataError("the tokenizer has no chat template: name a file with data.chat_template")
    try:
        text: str = vocabulary.tokenizer.apply_chat_template(
            list(messages),
            chat_template=form.template,
            tokenize=False,
            add_generation_prompt=ask,
            enable_thinking=form.thinking,
        )
    except Exception as error:
        raise Unusable(f"that the chat template refuses: {error}") from error
    return text


def encode_conversation(vocabulary: Vocabulary, form: ChatFormat, messages: Messages) -> Tuple[List[int], List[bool]]:
    """Token ids up to the last answer's end, and which are learned. Raises Unusable, DataError."""
    last = max(number for number, message in enumerate(messages) if message["role"] == "assistant")
    whole = render(vocabulary, form, messages[: last + 1], ask=False)
    answers = []
    for number, message in enumerate(messages[: last + 1]):
        if message["role"] == "assistant":
            begin = render(vocabulary, form, messages[:number], ask=True)
            end = whole if number == last else render(vocabulary, form, messages[: number + 1], ask=False)
            if whole.startswith(begin) and whole.startswith(end) and len(end) > len(begin):
                answers.append((len(begin), len(end)))
    encoded = vocabulary.tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ids: List[int] = encoded["input_ids"]
    learned = [False] * len(ids)
    for begin_at, end_at in answers:
        for place, (token_begin, token_end) in enumerate(encoded["offset_mapping"]):
            if token_begin >= begin_at and token_end <= end_at:
                learned[place] = True
                if ids[place] in vocabulary.end_ids:
                    break
    return ids, learned


def question_ids(vocabulary: Vocabulary, form: ChatFormat, messages: Messages) -> List[int]:
    """The conversation up to where its last answer would begin. Raises Unusable, DataError."""
    last = max(number for number, message in enumerate(messages) if message["role"] == "assistant")
    return vocabulary.encode(render(vocabulary, form, messages[:last], ask=True))
