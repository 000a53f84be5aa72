"""Text to token ids and back, by the checkpoint's `tokenizer.json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers

from model_export.runtime.artifact import read_settings
from model_export.runtime.errors import ArtifactError

TOKENIZER_FILE = "tokenizer.json"

_SPECIAL_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


class Tokenizer:
    """The tokenizer of an artifact.

    `special_tokens` has the text of each by its name in `tokenizer_config.json` (`bos_token`, ...).
    """

    def __init__(self, folder: Path) -> None:
        """Read it from an artifact's folder. Raises ArtifactError if it has no tokenizer.json."""
        path = folder / TOKENIZER_FILE
        if not path.is_file():
            raise ArtifactError(
                f"{folder} has no {TOKENIZER_FILE}: pass token ids, or add the file to the "
                "checkpoint with AutoTokenizer.from_pretrained(CHECKPOINT)"
                ".save_pretrained(CHECKPOINT) and export again."
            )
        # Whatever padding and length the file sets are those of its training.
        self.backend = tokenizers.Tokenizer.from_file(str(path))
        self.backend.no_padding()
        self.backend.no_truncation()
        self.config = read_settings(folder / "tokenizer_config.json")
        texts = {**read_settings(folder / "special_tokens_map.json"), **self.config}
        self.special_tokens = {
            name: text for name in _SPECIAL_TOKENS if (text := _text(texts.get(name))) is not None
        }

    def truncate(self, length: int) -> None:
        """Cut texts to `length` tokens from now on, the special ones around them included."""
        self.backend.enable_truncation(length)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Token ids; `special` adds those that the model expects around a text."""
        return list(self.backend.encode(text, add_special_tokens=special).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without special tokens."""
        return str(self.backend.decode(list(ids), skip_special_tokens=True))

    def special_id(self, name: str) -> int | None:
        """The id of a special token such as `pad_token`; None if the tokenizer has none."""
        text = self.special_tokens.get(name)
        return None if text is None else self.backend.token_to_id(text)


def _text(token: Any) -> str | None:
    """A token as `tokenizer_config.json` has it: a string, or an object with its `content`."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None
