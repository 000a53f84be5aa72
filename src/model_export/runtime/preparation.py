"""From what a caller asks for to a generation that can run: tokens, limits and rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model_export.runtime.arrays import as_array, input_dtypes
from model_export.runtime.artifact import Artifact
from model_export.runtime.decoder import Decoder
from model_export.runtime.errors import ArtifactError, InputError
from model_export.runtime.generation import Generation, Limits
from model_export.runtime.graph import Array
from model_export.runtime.placeholders import with_placeholders
from model_export.runtime.prompts import Prompts, TokenBatch, padded, token_rows, unpadded
from model_export.runtime.sampling import Sampling, TokenRules
from model_export.runtime.text_stream import TextStream
from model_export.runtime.tokenizer import Tokenizer

MAX_NEW_TOKENS = 256


class GenerationOptions(TypedDict, total=False):
    """The keyword arguments of `Model.generate` that `stream`, `chat` and `stream_chat` take."""

    max_new_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    repetition_penalty: float | None
    stop: str | Sequence[str]
    seed: int | Sequence[int] | None


def prepare(
    artifact: Artifact,
    decoder: Decoder,
    tokenizer: Tokenizer | None,
    prompts: Prompts | None,
    inputs: Mapping[str, ArrayLike],
    options: GenerationOptions,
) -> Generation:
    """The generation of `prompts` or raw `inputs`, as `Model.generate` describes them.

    `tokenizer` is None where the artifact has none. Raises InputError, ArtifactError.
    """
    dtypes = input_dtypes(artifact.manifest.components)
    arrays = {name: as_array(name, value, dtypes) for name, value in inputs.items()}
    pad = _pad_token(artifact)
    if artifact.is_encoder_decoder:
        prompt, arrays = _decoder_prompt(artifact, tokenizer, prompts, arrays, pad)
    else:
        prompt = padded(_rows(artifact, tokenizer, prompts, arrays), pad, left=True)
    stop = options.get("stop", ())
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if "" in stops:
        raise InputError("stop has an empty string: every text has that.")
    if stops and tokenizer is None:
        raise InputError(f"stop needs texts, and {artifact.folder} has no tokenizer.json.")
    return Generation(
        decoder,
        prompt,
        limits=Limits(
            room_for(artifact, prompt, options.get("max_new_tokens", MAX_NEW_TOKENS)),
            frozenset(artifact.token_ids("eos_token_id")),
            pad,
        ),
        sampling=sampling_for(artifact, options),
        rules=_rules(artifact, prompt),
        seed=options.get("seed"),
        inputs=arrays,
        streams=None if tokenizer is None else [TextStream(tokenizer, stops) for _ in prompt.ids],
    )


def sampling_for(artifact: Artifact, options: GenerationOptions) -> Sampling:
    """What the caller says, else the checkpoint; it never turns drawing on, as transformers does.

    A checkpoint's `top_k` of 0 and `top_p` of 1 keep all tokens.
    """
    own = artifact.generation_config
    top_k, top_p = options.get("top_k"), options.get("top_p")
    penalty = options.get("repetition_penalty")
    return Sampling(
        options.get("temperature", 0.0),
        top_k if top_k is not None else own.get("top_k") or None,
        top_p if top_p is not None else own.get("top_p"),
        penalty if penalty is not None else own.get("repetition_penalty") or 1.0,
    )


def _pad_token(artifact: Artifact) -> int:
    """What stands at masked positions, where any token would do."""
    return (*artifact.token_ids("pad_token_id"), *artifact.token_ids("eos_token_id"), 0)[0]


def _rows(
    artifact: Artifact,
    tokenizer: Tokenizer | None,
    prompts: Prompts | None,
    arrays: dict[str, Array],
) -> list[list[int]]:
    """The prompts' tokens, from `input_ids` (taken out of `arrays`) where no prompts are given."""
    ids, mask = arrays.pop("input_ids", None), arrays.pop("attention_mask", None)
    if (prompts is None) == (ids is None):
        raise InputError("Give either prompts or `input_ids`.")
    rows = token_rows(unpadded(ids, mask) if prompts is None else prompts, tokenizer)
    rows = with_placeholders(artifact.manifest, rows, arrays)
    vocabulary = artifact.model_setting("vocab_size")
    for number, row in enumerate(rows):
        if vocabulary is not None and not 0 <= min(row) <= max(row) < vocabulary:
            raise InputError(f"Prompt {number} has a token outside of 0 to {vocabulary - 1}.")
    return rows


def _decoder_prompt(
    artifact: Artifact,
    tokenizer: Tokenizer | None,
    prompts: Prompts | None,
    arrays: dict[str, Array],
    pad: int,
) -> tuple[TokenBatch, dict[str, Array]]:
    """What an encoder-decoder's decoder starts from, and the inputs of its encoder."""
    begin = arrays.pop("decoder_input_ids", None)
    if prompts is not None or "input_ids" in arrays:
        source = padded(_rows(artifact, tokenizer, prompts, arrays), pad, left=False)
        arrays |= {"input_ids": source.ids, "attention_mask": source.mask}
    if not arrays:
        raise InputError("Give prompts, or the encoder's inputs such as `input_features=`.")
    batch = len(next(iter(arrays.values())))
    if begin is None:
        begin = np.tile(np.asarray(decoder_start(artifact), np.int64), (batch, 1))
    if begin.ndim != 2 or len(begin) != batch:
        raise InputError(
            f"`decoder_input_ids` is {list(begin.shape)}: give it as [{batch}, tokens]."
        )
    ids: NDArray[np.int64] = begin.astype(np.int64)
    return TokenBatch(ids, np.ones_like(ids)), arrays


def decoder_start(artifact: Artifact) -> list[int]:
    """The tokens that a decoder starts from: the start token, and Whisper's forced ones if known.

    Raises ArtifactError if the checkpoint states none.
    """
    start = artifact.token_ids("decoder_start_token_id") or artifact.token_ids("bos_token_id")
    if not start:
        raise ArtifactError(
            f"{artifact.folder} states no decoder_start_token_id: pass `decoder_input_ids=`."
        )
    tokens = [start[0]]
    forced = artifact.generation_config.get("forced_decoder_ids") or []
    for position, token in sorted(forced):
        # None stands for a language to detect first.
        if token is None or position != len(tokens):
            break
        tokens.append(token)
    return tokens


def _rules(artifact: Artifact, prompt: TokenBatch) -> TokenRules:
    forced = artifact.token_ids("forced_bos_token_id")
    return TokenRules(
        artifact.token_ids("suppress_tokens"),
        artifact.token_ids("begin_suppress_tokens"),
        # It is forced as the second token only: after the start token alone.
        forced[0] if forced and prompt.ids.shape[1] == 1 else None,
    )


def room_for(artifact: Artifact, prompt: TokenBatch, wanted: int) -> int:
    """`wanted` new tokens, or as many as the model has positions for. Raises InputError."""
    length = prompt.ids.shape[1]
    limits = [
        artifact.model_setting("max_target_positions")
        or artifact.model_setting("max_position_embeddings"),
        artifact.manifest.spec["generation_config"].get("max_cache_len"),
    ]
    # The last token is never fed: it needs no position.
    room = min((int(limit) - length + 1 for limit in limits if limit), default=wanted)
    if room < 1:
        raise InputError(
            f"The prompt has {length} tokens, and {artifact.folder} has room for "
            f"{length + room - 1}: shorten it."
        )
    return min(wanted, room)
