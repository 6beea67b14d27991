"""Text to token ids: a byte-level BPE made here, or the tokenizer.json of a given model folder.

Rule: the mask token is an existing row of the target's vocabulary that no text ever contains.
"""

from __future__ import annotations

from pathlib import Path
from typing import Iterable, List

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|eos|>"
MASK = "<|mask|>"
FILE_NAME = "tokenizer.json"


class Vocabulary:
    """A tokenizer with its two special ids. Raises ValueError when the tokenizer lacks one of them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.size: int = tokenizer.get_vocab_size()
        self.end_id = self._special(END)
        self.mask_id = self._special(MASK)

    def _special(self, token: str) -> int:
        found: int | None = self._tokenizer.token_to_id(token)
        if found is None:
            raise ValueError(f"the tokenizer has no {token} token; the drafter needs it")
        return found

    def encode(self, text: str) -> List[int]:
        ids: List[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def save(self, folder: Path) -> None:
        self._tokenizer.save(str(folder / FILE_NAME))


def train_vocabulary(texts: Iterable[str], size: int) -> Vocabulary:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END, MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return Vocabulary(tokenizer)


def load_vocabulary(folder: Path) -> Vocabulary:
    """Raises FileNotFoundError, naming the file, and ValueError."""
    path = folder / FILE_NAME
    if not path.is_file():
        raise FileNotFoundError(f"no {FILE_NAME} in {folder}")
    return Vocabulary(Tokenizer.from_file(str(path)))
