"""Chooses the decoder that an artifact's components make possible."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from model_export.manifest import ComponentRecord, Manifest
from model_export.runtime.decoder import Decoder
from model_export.runtime.decoders.cache_tensors import static_length
from model_export.runtime.decoders.cached_graph import CachedGraph, open_cached_graph
from model_export.runtime.decoders.causal import CausalDecoder
from model_export.runtime.decoders.encoder_decoder import EncoderDecoder
from model_export.runtime.decoders.media import open_media
from model_export.runtime.decoders.model_config import ModelConfig, read_model_config
from model_export.runtime.decoders.multimodal import MultimodalDecoder
from model_export.runtime.decoders.prefill import Prefill
from model_export.runtime.decoders.signature import TOKEN_NAMES, read_signature
from model_export.runtime.errors import ArtifactError
from model_export.runtime.graph import check_device, open_graph

# What a prompt goes through, in this order, after the encoders.
MULTIMODAL_GRAPHS = ("embed_tokens", "language_model", "lm_head")


def open_decoder(folder: Path, manifest: Manifest, device: str = "cpu") -> Decoder:
    """The decoder of the artifact in `folder`; see `model_export.runtime.decoder`."""
    check_device(manifest.export_format, device)
    records = {record.name: record for record in manifest.components}
    if "decode" not in records:
        raise ArtifactError(
            f"This artifact has {', '.join(records)} and no `decode`: export it with "
            "for_generation=True to generate with it."
        )
    config, slots = read_model_config(folder), static_length(manifest)
    decode = open_cached_graph(folder, manifest, records["decode"], config, device)
    # Without its other graphs it takes text alone, and is a decoder like any other.
    if manifest.multimodal is not None and records.keys() != {"decode"}:
        return _open_multimodal(folder, manifest, records, decode, config, device)
    encoder_decoder = decode.signature.tokens.name == TOKEN_NAMES[1]
    if encoder_decoder and not {"encoder", "prefill"} <= records.keys():
        raise ArtifactError(
            f"This artifact has {', '.join(records)}; an encoder-decoder generates with `encoder`, "
            "`prefill` and `decode`: name them in `components`, or leave that out."
        )
    prefill = None
    # Without a mask the state isn't one of positions: decode alone makes it, token by token.
    if "prefill" in records and (
        encoder_decoder or (decode.signature.tokens_at_once == 1 and decode.signature.padded)
    ):
        graph = open_graph(folder, manifest.export_format, records["prefill"], device)
        prefill = Prefill(graph, read_signature(records["prefill"], manifest, config))
    if not encoder_decoder:
        return CausalDecoder(decode, prefill, slots, config.window)
    assert prefill is not None
    encoder = open_graph(folder, manifest.export_format, records["encoder"], device)
    return EncoderDecoder(encoder, prefill, decode, slots)


def _open_multimodal(
    folder: Path,
    manifest: Manifest,
    records: Mapping[str, ComponentRecord],
    decode: CachedGraph,
    config: ModelConfig,
    device: str,
) -> Decoder:
    assert manifest.multimodal is not None
    missing = [name for name in MULTIMODAL_GRAPHS if name not in records]
    if missing:
        raise ArtifactError(
            f"This artifact has {', '.join(records)} and no {', '.join(missing)}, which a prompt "
            "with images or sound goes through: name it in `components`, or leave that out."
        )
    embedding, language_model, head = (
        open_graph(folder, manifest.export_format, records[name], device)
        for name in MULTIMODAL_GRAPHS
    )
    signature = read_signature(records["language_model"], manifest, config)
    return MultimodalDecoder(
        open_media(folder, manifest, device),
        embedding,
        Prefill(language_model, signature),
        head,
        decode,
        grid_merge=manifest.multimodal.grid_merge,
        slots=static_length(manifest),
        window=config.window,
    )
