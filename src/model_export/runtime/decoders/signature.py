"""What a decode loop has to know of a graph: its tokens, masks, cache and limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from model_export.manifest import ComponentRecord, Dimension, Manifest, TensorRecord
from model_export.runtime.decoders.cache_tensors import CACHE, CacheKind, CacheTensor, read_cache
from model_export.runtime.decoders.model_config import ModelConfig
from model_export.runtime.errors import ArtifactError
from model_export.runtime.graph import plain_name

LOGITS = "logits"
HIDDEN_STATE = "last_hidden_state"
# Tokens as ids; or as vectors, in the language model of a model that sees or hears.
TOKEN_NAMES = ("input_ids", "decoder_input_ids", "inputs_embeds")
POSITION_NAMES = ("position_ids", "decoder_position_ids")
ENCODER_PREFIX = "encoder_outputs."
# OpenVINO's own input; the graph's session fills it.
_BEAM_INDEX = "beam_idx"


@dataclass(frozen=True)
class Mask:
    """An input that says which positions may be seen.

    Of rank 2 it is [batch, all positions so far]; of rank 4 [batch, 1, new positions, all positions
    that the cache has room for], of a layer type if its name ends in one.
    """

    tensor: TensorRecord
    sliding: bool

    @property
    def full(self) -> bool:
        """Whether it has a row for each new position."""
        return len(self.tensor.shape) == 4


@dataclass(frozen=True)
class Signature:
    """The inputs of a decode or prefill graph by what they are for.

    `tokens_at_once` is the number of tokens that a call takes: exactly one or another number if
    `fixed`, otherwise up to that; None is any number. `limit` is the number of positions a sequence
    can have in all, `batch_limit` the number of sequences; `fixed_batch` the only one it takes.
    """

    record: ComponentRecord
    tokens: TensorRecord
    positions: TensorRecord | None
    masks: tuple[Mask, ...]
    encoder: tuple[TensorRecord, ...]
    cache: tuple[CacheTensor, ...]
    tokens_at_once: int | None
    fixed: bool
    limit: int | None
    batch_limit: int | None
    fixed_batch: int | None

    @property
    def padded(self) -> bool:
        """Whether a batch of unequal lengths can be fed."""
        return bool(self.masks)


def read_signature(
    record: ComponentRecord,
    manifest: Manifest,
    config: ModelConfig,
    states: Sequence[tuple[TensorRecord, TensorRecord]] = (),
) -> Signature:
    """The signature of a prefill or decode component.

    `states` are the cache tensors that the graph keeps by itself, each as its input and output.
    Raises ArtifactError for an input that no decode loop knows how to fill, and for a cache of
    unknown size.
    """
    inputs = {tensor.name: tensor for tensor in record.inputs}
    tokens = next((inputs[name] for name in TOKEN_NAMES if name in inputs), None)
    outputs = {tensor.name for tensor in record.outputs}
    embedded = tokens is not None and tokens.name == TOKEN_NAMES[2]
    if tokens is None or (HIDDEN_STATE if embedded else LOGITS) not in outputs:
        raise ArtifactError(
            f"`{record.name}` doesn't take token ids and give logits: it can't be decoded with."
        )
    encoder_decoder = tokens.name == TOKEN_NAMES[1]
    masks, encoder = [], []
    for tensor in record.inputs:
        # Qwen2-Audio (transformers 5.24.0) gives its mask back: both have a side in their names.
        name = plain_name(tensor.name)
        kind = name.partition(".")[0]
        if name == tokens.name or name in POSITION_NAMES or name == _BEAM_INDEX:
            continue
        if name.startswith(CACHE):
            continue
        if name.startswith(ENCODER_PREFIX) or (encoder_decoder and kind == "attention_mask"):
            encoder.append(tensor)
        elif kind in ("attention_mask", "decoder_attention_mask"):
            masks.append(_mask(record, tensor))
        else:
            raise ArtifactError(
                f"`{record.name}` takes `{name}`, which this runtime doesn't know how to fill."
            )
    cache = read_cache(record, manifest, config, states)
    at_once, fixed = _tokens_at_once(tokens, record, manifest, encoder_decoder)
    fixed_batch = tokens.shape[0] if isinstance(tokens.shape[0], int) else None
    return Signature(
        record=record,
        tokens=tokens,
        positions=next((inputs[name] for name in POSITION_NAMES if name in inputs), None),
        masks=tuple(masks),
        encoder=tuple(encoder),
        cache=cache,
        tokens_at_once=at_once,
        fixed=fixed,
        limit=_limit(record, masks, cache),
        batch_limit=_upper_bound(record, tokens.shape[0]),
        fixed_batch=fixed_batch,
    )


def _mask(record: ComponentRecord, tensor: TensorRecord) -> Mask:
    layer_type = plain_name(tensor.name).partition(".")[2]
    if layer_type not in ("", "full_attention", "sliding_attention"):
        raise ArtifactError(
            f"`{record.name}` takes `{tensor.name}`: this runtime makes masks of full and of "
            "sliding attention only."
        )
    if len(tensor.shape) not in (2, 4) or (len(tensor.shape) == 4 and tensor.dtype != "bool"):
        raise ArtifactError(
            f"`{record.name}` takes `{tensor.name}` as {tensor.dtype} of {len(tensor.shape)} axes: "
            "this runtime makes [batch, positions] and bool [batch, 1, new, positions]."
        )
    return Mask(tensor, sliding=layer_type == "sliding_attention")


def _tokens_at_once(
    tokens: TensorRecord, record: ComponentRecord, manifest: Manifest, encoder_decoder: bool
) -> tuple[int | None, bool]:
    """How many tokens a call takes, and whether it takes no other number."""
    size = tokens.shape[1]
    if isinstance(size, int):
        return size, True
    # Captured with one token; OpenVINO keeps no sign of that in the graph.
    prompts = record.name in ("prefill", "language_model")
    multi = manifest.spec.get("multi_token_decode", False) or prompts
    if size == "?" and (encoder_decoder or not multi):
        return 1, True
    return _upper_bound(record, size), False


def _limit(
    record: ComponentRecord,
    masks: Iterable[Mask],
    cache: Iterable[CacheTensor],
) -> int | None:
    """The positions a sequence can have: of the static cache, or of the bounds of mask and past."""
    limits = [_upper_bound(record, mask.tensor.shape[1]) for mask in masks if not mask.full]
    for tensor in cache:
        if tensor.kind is CacheKind.STATIC:
            limits.append(tensor.sizes[-2])
        elif tensor.kind is CacheKind.GROWING and tensor.output is not None:
            past, after = tensor.input.shape[-2], tensor.output.shape[-2]
            # A window that the graph cuts off doesn't limit the sequence.
            if str(past) in str(after).split(" + "):
                limits.append(_upper_bound(record, past))
    return min((limit for limit in limits if limit is not None), default=None)


def _upper_bound(record: ComponentRecord, dimension: Dimension) -> int | None:
    if isinstance(dimension, int):
        return dimension
    bounds = record.bounds.get(dimension)
    return None if bounds is None else bounds[1]
