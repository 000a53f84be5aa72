"""Text out of tokens as they come: whole characters only, and nothing of a stop string."""

from __future__ import annotations

from collections.abc import Sequence

from model_export.runtime.tokenizer import Tokenizer

# What tokenizers make of bytes that are no character yet.
_INCOMPLETE = "\ufffd"


class StopText:
    """Passes text on up to the first stop string to be completed.

    Which one that is doesn't depend on how the text is cut into pieces. What could still become a
    stop string is held back.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """What may be shown after `text` has come; sets `stopped`."""
        if self.stopped:
            return ""
        text = self._held + text
        ends = [(text.find(stop) + len(stop), -len(stop)) for stop in self._stop if stop in text]
        if ends:
            self.stopped = True
            end, length = min(ends)
            self._held = ""
            return text[: end + length]
        held = max((_overlap(text, stop) for stop in self._stop), default=0)
        shown = len(text) - held
        self._held = text[shown:]
        return text[:shown]

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that `stop` starts with."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)


class TextStream:
    """The text of one sequence, piece by piece. All pieces together are the text.

    That is what decoding all tokens at once gives, unless a model writes bytes that are no UTF-8:
    byte-fallback decoders then take back characters that have been shown already. It is also why
    this isn't `tokenizers.decoders.DecodeStream`, which raises "Invalid prefix encountered while
    decoding stream" there (tokenizers 0.23.3).
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        # Decoded is from `_context` on, shown already what the tokens before `_shown` give: what a
        # token says can depend on the one before, such as the space that a text doesn't begin with.
        self._context = 0
        self._shown = 0
        self._stop = StopText(stop)

    @property
    def stopped(self) -> bool:
        """Whether a stop string has come; it is no part of the text."""
        return self._stop.stopped

    def push(self, token: int) -> str:
        """The text that `token` completes, empty within a character or a possible stop string."""
        self._ids.append(token)
        text = self._new_text()
        if not text or text.endswith(_INCOMPLETE):
            return ""
        self._context, self._shown = self._shown, len(self._ids)
        return self._stop.push(text)

    def flush(self) -> str:
        """The rest at the end of a sequence, an incomplete character included."""
        return self._stop.push(self._new_text()) + self._stop.flush()

    def _new_text(self) -> str:
        known = self._tokenizer.decode(self._ids[self._context : self._shown])
        return self._tokenizer.decode(self._ids[self._context :])[len(known) :]
