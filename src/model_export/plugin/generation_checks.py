"""Checks of what only `for_generation` has: `generation_config` and `components`."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, Mapping, Optional, Tuple

from model_export.plugin.field_errors import SpecError, nearest, require_mapping
from model_export.spec import CACHE_IMPLEMENTATIONS, COMPONENT_NAME, GENERATION_COMPONENTS

# The keys of transformers.GenerationConfig 5.24.0; a test compares them with the engine's own.
GENERATION_CONFIG_KEYS = (
    "assistant_confidence_threshold",
    "assistant_early_exit",
    "assistant_ensemble_weight",
    "assistant_lookbehind",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_config",
    "cache_implementation",
    "compile_config",
    "constraints",
    "continuous_batching_config",
    "decoder_start_token_id",
    "disable_compile",
    "diversity_penalty",
    "do_sample",
    "dola_layers",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "eos_token_id",
    "epsilon_cutoff",
    "eta_cutoff",
    "exponential_decay_length_penalty",
    "force_words_ids",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "guidance_scale",
    "is_assistant",
    "length_penalty",
    "low_memory",
    "max_cache_len",
    "max_length",
    "max_matching_ngram_size",
    "max_new_tokens",
    "max_time",
    "min_length",
    "min_new_tokens",
    "min_p",
    "no_repeat_ngram_size",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "pad_token_id",
    "penalty_alpha",
    "prefill_chunk_size",
    "prompt_lookup_num_tokens",
    "remove_invalid_values",
    "renormalize_logits",
    "repetition_penalty",
    "return_dict_in_generate",
    "sequence_bias",
    "speculation_type",
    "stop_strings",
    "suppress_tokens",
    "target_lookbehind",
    "temperature",
    "token_healing",
    "top_h",
    "top_k",
    "top_p",
    "typical_p",
    "use_cache",
    "use_mtp",
    "watermarking_config",
)

_GENERATION_CONFIG_ALIASES: Mapping[str, str] = {
    "cache": "cache_implementation",
    "cache_type": "cache_implementation",
    "max_cache_length": "max_cache_len",
    "cache_len": "max_cache_len",
}

COMPONENT_ALIASES: Mapping[str, str] = {
    "decoder": "decode",
    "encoder": "prefill",
    "prompt": "prefill",
    "vision_encoder": "image_encoder",
    "projector": "multi_modal_projector",
    "embedding": "embed_tokens",
    "input_embeddings": "embed_tokens",
}


def check_generation_config(value: object) -> Dict[str, Any]:
    """Check `generation_config` against the keys of the engine's GenerationConfig.

    Raises SpecError for an unknown key, a value that JSON can't hold, an unknown
    `cache_implementation`, and a static cache without its length.
    """
    given = require_mapping("generation_config", value, "a dict")
    checked = {}
    for name, item in sorted(given.items()):
        path = f"generation_config[{name!r}]"
        if name not in GENERATION_CONFIG_KEYS:
            raise SpecError(
                path,
                "is no key of GenerationConfig",
                nearest(name, GENERATION_CONFIG_KEYS, _GENERATION_CONFIG_ALIASES),
            )
        checked[name] = plain_json(path, item)
    cache = checked.get("cache_implementation")
    if cache is not None and cache not in CACHE_IMPLEMENTATIONS:
        raise SpecError(
            "generation_config['cache_implementation']",
            f"is {cache!r}, which can't be exported",
            nearest(str(cache), CACHE_IMPLEMENTATIONS),
        )
    length = checked.get("max_cache_len")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int)):
        raise SpecError(
            "generation_config['max_cache_len']",
            f"must be an int, not {length!r}",
            "Write the number of tokens that the cache holds: 2048",
        )
    if length is not None and length < 2:
        raise SpecError(
            "generation_config['max_cache_len']",
            f"is {length}",
            "Write the number of tokens that the cache holds: 2048",
        )
    if cache == "static" and length is None:
        raise SpecError(
            "generation_config['cache_implementation']",
            "is 'static' without 'max_cache_len': the cache would be as short as the sample inputs",
            "Add 'max_cache_len': 2048, prompt and new tokens together",
        )
    if cache != "static" and length is not None:
        raise SpecError(
            "generation_config['max_cache_len']",
            "only has a meaning for a static cache",
            "Remove it, or add 'cache_implementation': 'static'",
        )
    return checked


def check_component_name(path: str, name: object, problem: str, custom: bool) -> None:
    """Raise SpecError with `problem` if `name` can't be a component's.

    With `custom`, where the target's own file may name components as it likes, only the form of
    the name is checked; the export process knows the rest.
    """
    if name in GENERATION_COMPONENTS:
        return
    if not custom:
        raise SpecError(path, problem, nearest(str(name), GENERATION_COMPONENTS, COMPONENT_ALIASES))
    if not isinstance(name, str) or not re.fullmatch(COMPONENT_NAME, name):
        raise SpecError(path, problem, "Write small letters, digits and `_`")


def check_components(value: object, custom: bool = False) -> Optional[Tuple[str, ...]]:
    """Check the names in `components`; None stays None.

    `custom` is as in `check_component_name`. Raises SpecError for an empty list, an unknown and a
    repeated name.
    """
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, (list, tuple)):
        raise SpecError("components", f"must be a list, not {value!r}", 'Write ["decode"]')
    if not value:
        raise SpecError("components", "is empty", "Remove it to build what the model has")
    for name in value:
        check_component_name("components", name, f"has {name!r}, which is no component", custom)
        if list(value).count(name) > 1:
            raise SpecError("components", f"names {name!r} twice", "Name each component once")
    return tuple(value)


def check_only_for_generation(
    generation_config: Mapping[str, Any],
    multi_token_decode: bool,
    components: Optional[Tuple[str, ...]],
    component_config: bool = False,
) -> None:
    """Raise SpecError if any of these is set; called where `for_generation` isn't."""
    for path, is_set in (
        ("generation_config", bool(generation_config)),
        ("multi_token_decode", multi_token_decode),
        ("components", components is not None),
        ("component_config", component_config),
    ):
        if is_set:
            raise SpecError(
                path,
                "only has a meaning with for_generation=True",
                "Add `for_generation=True`, or remove it",
            )


def plain_json(path: str, value: object) -> Any:
    """`value` as JSON holds it: tuples become lists. Raises SpecError for what JSON can't hold."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SpecError(path, f"is {value!r}", "Write a finite number")
        return value
    if isinstance(value, (list, tuple)):
        return [plain_json(path, item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain_json(path, item) for key, item in value.items()}
    raise SpecError(
        path, f"is a {type(value).__name__}", "Write numbers, strings, lists and dicts only"
    )
