"""Text as it comes out of tokens: characters cut into bytes, and stop strings."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from model_export.runtime.text_stream import StopText, TextStream
from model_export.runtime.tokenizer import Tokenizer as ArtifactTokenizer

TEXT = "naïve 日本語 🙂👩‍👩‍👧 ok"


def _byte_level() -> Tokenizer:
    """A token for each byte, as GPT-2 spells them, and a few longer ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "o"), ("o", "k"), ("n", "a")]
    vocabulary = {token: index for index, token in enumerate(alphabet)}
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _byte_fallback() -> Tokenizer:
    """Words with `▁` for a space, and bytes where there is no word: Llama 2's kind."""
    words = [
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        *"abcdefghijklmnopqrstuvwxyz",
    ]
    vocabulary = {token: index for index, token in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


@pytest.fixture(params=[_byte_level, _byte_fallback])
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactTokenizer:
    backend = request.param()
    backend.add_special_tokens([AddedToken("<end>", special=True)])
    backend.save(str(tmp_path / "tokenizer.json"))
    return ArtifactTokenizer(tmp_path)


def _pieces(stream: TextStream, ids: list[int]) -> list[str]:
    return [*(stream.push(token) for token in ids), stream.flush()]


def test_pieces_are_whole_characters(tokenizer: ArtifactTokenizer) -> None:
    ids = tokenizer.encode(TEXT)
    assert len(ids) > len(TEXT)
    pieces = _pieces(TextStream(tokenizer), ids)
    assert "".join(pieces) == TEXT
    assert "\ufffd" not in "".join(pieces)
    assert "日" in pieces and "🙂" in "".join(pieces[:-1])


def test_all_pieces_are_the_whole_text_whatever_the_tokens(tokenizer: ArtifactTokenizer) -> None:
    draw = random.Random(0)
    for _ in range(300):
        text = "".join(draw.choices("ab k naïé日本🙂👩\u200d", k=30)).strip()
        ids = tokenizer.encode(text)
        assert "".join(_pieces(TextStream(tokenizer), ids)) == tokenizer.decode(ids) == text


def test_bytes_that_are_no_text(tokenizer: ArtifactTokenizer) -> None:
    """Whatever a model writes, there is a text, and only its last character can be incomplete."""
    draw = random.Random(0)
    for _ in range(300):
        ids = draw.choices(range(tokenizer.backend.get_vocab_size()), k=20)
        text = "".join(_pieces(TextStream(tokenizer), ids))
        if isinstance(tokenizer.backend.decoder, decoders.ByteLevel):
            assert text == tokenizer.decode(ids)


def test_the_decode_stream_of_tokenizers_still_raises() -> None:
    """Once this fails, `TextStream` can be `DecodeStream` and `StopText`."""
    stream = decoders.DecodeStream(skip_special_tokens=True)
    backend = _byte_fallback()
    word, no_utf8, letter = (backend.token_to_id(token) for token in ("<0x57>", "<0xFF>", "c"))
    assert stream.step(backend, word) == "W"
    assert stream.step(backend, no_utf8) is None
    with pytest.raises(Exception, match="Invalid prefix"):
        stream.step(backend, letter)


def test_an_incomplete_character_comes_at_the_end(tokenizer: ArtifactTokenizer) -> None:
    ids = tokenizer.encode("ok 🙂")[:-1]
    pieces = _pieces(TextStream(tokenizer), ids)
    assert "".join(pieces[:-1]) == "ok "
    assert set(pieces[-1]) == {"\ufffd"}


def test_special_tokens_are_no_text(tokenizer: ArtifactTokenizer) -> None:
    ids = tokenizer.encode("ok<end>ok", special=False)
    assert "".join(_pieces(TextStream(tokenizer), ids)).replace(" ", "") == "okok"


def test_a_stop_string_over_several_tokens_is_never_shown(tokenizer: ArtifactTokenizer) -> None:
    stream = TextStream(tokenizer, ["日本語"])
    shown = ""
    for token in tokenizer.encode(TEXT):
        shown += stream.push(token)
        assert "naïve 日本語".startswith(shown) and "日" not in shown
        if stream.stopped:
            break
    assert stream.stopped
    assert shown + stream.flush() == "naïve "


def test_what_only_began_like_a_stop_string_is_shown() -> None:
    text = StopText(["END"])
    assert [text.push(piece) for piece in ["ab E", "N", "d", "."]] == ["ab ", "", "ENd", "."]
    assert text.push("EN") == ""
    assert text.flush() == "EN"
    assert not text.stopped


@pytest.mark.parametrize("size", [1, 2, 3, 20])
def test_the_first_stop_string_to_be_complete_wins(size: int) -> None:
    """`bc` is complete before `abcd`, however the text is cut; of two at once the longer wins."""
    for stop, expected in [(["abcd", "bc"], "xa"), (["c", "abc"], "x"), (["zz", "d"], "xabc")]:
        stopper, text = StopText(stop), "xabcde"
        shown = "".join(
            stopper.push(text[start : start + size]) for start in range(0, len(text), size)
        )
        assert stopper.stopped
        assert shown + stopper.flush() == expected


def test_nothing_comes_after_a_stop_string() -> None:
    text = StopText(["."])
    assert text.push("a.b") == "a"
    assert text.push("c") == "" and text.flush() == ""


def test_overlapping_beginnings_of_a_stop_string() -> None:
    text = StopText(["aab"])
    assert [text.push(letter) for letter in "aaab"] == ["", "", "a", ""]
    assert text.stopped
