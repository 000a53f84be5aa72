"""What a decode loop has to know of a graph: its tokens, masks, cache and limits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from model_export.manifest import ComponentRecord, Dimension, Manifest, TensorRecord
from model_export.runtime.errors import ArtifactError
from model_export.runtime.graph import plain_name

LOGITS = "logits"
TOKEN_NAMES = ("input_ids", "decoder_input_ids")
POSITION_NAMES = ("position_ids", "decoder_position_ids")
ENCODER_PREFIX = "encoder_outputs."
_CACHE = "cache."
_CROSS = ".cross_attention_cache."
# OpenVINO's own input; the graph's session fills it.
_BEAM_INDEX = "beam_idx"


class CacheKind(Enum):
    """How a cache tensor changes from one call to the next."""

    GROWING = "growing"  # [batch, heads, positions, head_dim], longer by the tokens of the call.
    STATIC = "static"  # [batch, heads, length, head_dim], written at the positions of the call.
    STATE = "state"  # Of a fixed size; the output replaces the input.
    SCALAR = "scalar"  # A number without a batch: how much of a layer is filled, or its window.
    CROSS = "cross"  # Of the encoder's tokens; the same until the next `start`.


@dataclass(frozen=True)
class CacheTensor:
    """A tensor that a call takes as `input` and hands on as `output`, None if it doesn't."""

    kind: CacheKind
    input: TensorRecord
    output: TensorRecord | None

    @property
    def name(self) -> str:
        """What the eager model calls it."""
        return plain_name(self.input.name)


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
    states: Sequence[tuple[TensorRecord, TensorRecord]] = (),
) -> Signature:
    """The signature of a prefill or decode component.

    `states` are the cache tensors that the graph keeps by itself, each as its input and output.
    Raises ArtifactError for an input that no decode loop knows how to fill.
    """
    inputs = {tensor.name: tensor for tensor in record.inputs}
    tokens = next((inputs[name] for name in TOKEN_NAMES if name in inputs), None)
    if tokens is None or LOGITS not in {tensor.name for tensor in record.outputs}:
        raise ArtifactError(
            f"`{record.name}` doesn't take token ids and give logits: it can't be decoded with."
        )
    encoder_decoder = tokens.name == TOKEN_NAMES[1]
    masks, encoder, cache = [], [], []
    outputs = {plain_name(tensor.name): tensor for tensor in record.outputs}
    for tensor in record.inputs:
        name, kind = tensor.name, tensor.name.partition(".")[0]
        if name == tokens.name or name in POSITION_NAMES or name == _BEAM_INDEX:
            continue
        if plain_name(name).startswith(_CACHE):
            cache.append(_cache_tensor(tensor, outputs.get(plain_name(name)), inputs))
        elif name.startswith(ENCODER_PREFIX) or (encoder_decoder and kind == "attention_mask"):
            encoder.append(tensor)
        elif kind in ("attention_mask", "decoder_attention_mask"):
            masks.append(_mask(record, tensor))
        else:
            raise ArtifactError(
                f"`{record.name}` takes `{name}`, which this runtime doesn't know how to fill."
            )
    if states and static_length(manifest) is not None:
        # transformers 5.24.0 turns what counts the filled positions into a constant.
        raise ArtifactError(
            f"`{record.name}` keeps a static cache as OpenVINO's state, without a count of what is "
            "filled: export it with config stateful=False, or with a growing cache."
        )
    cache += [_cache_tensor(before, after, inputs) for before, after in states]
    at_once, fixed = _tokens_at_once(tokens, record, manifest, encoder_decoder)
    fixed_batch = tokens.shape[0] if isinstance(tokens.shape[0], int) else None
    return Signature(
        record=record,
        tokens=tokens,
        positions=next((inputs[name] for name in POSITION_NAMES if name in inputs), None),
        masks=tuple(masks),
        encoder=tuple(encoder),
        cache=tuple(cache),
        tokens_at_once=at_once,
        fixed=fixed,
        limit=_limit(record, manifest, masks, cache),
        batch_limit=_upper_bound(record, tokens.shape[0]),
        fixed_batch=fixed_batch,
    )


def static_length(manifest: Manifest) -> int | None:
    """The positions that a static cache has room for; None if the artifact has no static cache."""
    settings = manifest.spec.get("generation_config", {})
    if settings.get("cache_implementation") != "static":
        return None
    length = settings.get("max_cache_len")
    return None if length is None else int(length)


def inner_sizes(
    record: ComponentRecord, tensor: CacheTensor, manifest: Manifest
) -> tuple[int, ...]:
    """The sizes of a cache tensor at its start, without the batch: 0 positions if it grows.

    A size that the decode graph leaves open is taken from a component that doesn't: what a prefill
    puts out. Raises ArtifactError if none has it.
    """
    sizes = list(tensor.input.shape[1:])
    others = [
        other.shape[1:]
        for component in manifest.components
        for other in (*component.inputs, *component.outputs)
        if plain_name(other.name) == tensor.name and len(other.shape) == len(tensor.input.shape)
    ]
    for axis, size in enumerate(sizes):
        if not isinstance(size, int):
            known = (other[axis] for other in others)
            sizes[axis] = next((size for size in known if isinstance(size, int)), size)
    if tensor.kind is CacheKind.GROWING:
        sizes[-2] = 0
    elif tensor.kind is CacheKind.STATIC and not isinstance(sizes[-2], int):
        sizes[-2] = static_length(manifest) or "?"
    fixed = tuple(size for size in sizes if isinstance(size, int))
    if len(fixed) != len(sizes):
        raise ArtifactError(
            f"`{record.name}` takes `{tensor.input.name}` {list(tensor.input.shape)}: a cache "
            "needs a size on every axis but the batch and the positions. Export it again."
        )
    return fixed


def first_scalar(tensor: CacheTensor, window: int | None) -> int:
    """What a number of an empty cache is. Raises ArtifactError if nothing says it."""
    if tensor.name.endswith("._sliding_window_tensor"):
        if window is None:
            raise ArtifactError(
                f"`{tensor.input.name}` needs `sliding_window` in the artifact's config.json: "
                "export it again."
            )
        return window
    return 0


def _cache_tensor(
    tensor: TensorRecord, output: TensorRecord | None, inputs: dict[str, TensorRecord]
) -> CacheTensor:
    layer = tensor.name.rpartition(".")[0]
    part = tensor.name.rpartition(".")[2]
    if not tensor.shape:
        kind = CacheKind.SCALAR
    elif _CROSS in tensor.name:
        kind = CacheKind.CROSS
    elif f"{layer}.cumulative_length" in inputs:
        kind = CacheKind.STATIC
    elif part in ("keys", "values"):
        kind = CacheKind.GROWING
    else:
        kind = CacheKind.STATE
    return CacheTensor(kind, tensor, output)


def _mask(record: ComponentRecord, tensor: TensorRecord) -> Mask:
    layer_type = tensor.name.partition(".")[2]
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
    multi = manifest.spec.get("multi_token_decode", False) or record.name == "prefill"
    if size == "?" and (encoder_decoder or not multi):
        return 1, True
    return _upper_bound(record, size), False


def _limit(
    record: ComponentRecord,
    manifest: Manifest,
    masks: Iterable[Mask],
    cache: Iterable[CacheTensor],
) -> int | None:
    """The positions a sequence can have: of the static cache, or of the bounds of mask and past."""
    limits = [_upper_bound(record, mask.tensor.shape[1]) for mask in masks if not mask.full]
    for tensor in cache:
        if tensor.kind is CacheKind.STATIC:
            length = tensor.input.shape[-2]
            limits.append(length if isinstance(length, int) else static_length(manifest))
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
