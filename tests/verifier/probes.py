"""Probes made from eager models, and artifacts around what an export leaves, for the tests."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel
from transformers.exporters.utils import get_leaf_tensors

from model_export.manifest import (
    MANIFEST_FILE,
    CheckpointRecord,
    ComponentRecord,
    Manifest,
    record_files,
)
from model_export.probe import PROBE_FILE, TENSORS_FILE, GenerationCase, GraphCase, Probe
from model_export.spec import ExportSpec


@dataclass
class ProbeWriter:
    """Collects cases and their tensors, and writes them as the export process does."""

    graphs: list[GraphCase] = field(default_factory=list)
    generations: list[GenerationCase] = field(default_factory=list)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    def call(
        self,
        component: str,
        name: str,
        module: torch.nn.Module,
        inputs: Mapping[str, Any],
        padding: str | None = None,
    ) -> None:
        """Run `module(**inputs)` and keep both sides; a cache in `inputs` is changed by the run."""
        given = self._keep(f"{component}/{name}/in", get_leaf_tensors(dict(inputs)))
        with torch.no_grad():
            outputs = module(**inputs)
        got = self._keep(f"{component}/{name}/out", get_leaf_tensors(dict(outputs)))
        self.graphs.append(GraphCase(component, name, not self.graphs, given, got, padding))

    def generate(
        self,
        name: str,
        model: PreTrainedModel,
        inputs: Mapping[str, torch.Tensor],
        steps: int,
        chunks: Sequence[int],
        cache: Any,
    ) -> None:
        """Feed a decoder's prompt in `chunks` and then `steps` greedy tokens, on `cache`."""
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        tokens, logits = [], []
        shapes: dict[str, list[tuple[int, ...]]] = {}
        fed = 0
        pending = [ids[:, sum(chunks[:i]) : sum(chunks[: i + 1])] for i in range(len(chunks))]
        for _ in range(steps):
            for part in pending:
                fed += part.shape[1]
                seen = mask[:, :fed]
                positions = (seen.cumsum(-1) - 1).clamp(min=0)[:, -part.shape[1] :]
                with torch.no_grad():
                    output = model(
                        input_ids=part,
                        attention_mask=seen,
                        position_ids=positions,
                        past_key_values=cache,
                    )
            logits.append(output.logits[:, -1].float())
            tokens.append(logits[-1].argmax(-1, keepdim=True))
            for leaf, tensor in get_leaf_tensors({"cache": cache}).items():
                shapes.setdefault(leaf, []).append(tuple(tensor.shape[1:]))
            pending = [tokens[-1]]
            mask = torch.cat([mask, torch.ones_like(tokens[-1])], dim=1)
        keys = self._keep(f"generation/{name}", {**inputs})
        made = self._keep(
            f"generation/{name}",
            {"tokens": torch.cat(tokens, dim=1), "logits": torch.stack(logits, dim=1)},
        )
        self.generations.append(
            GenerationCase(
                name,
                keys,
                tuple(chunks),
                made["tokens"],
                made["logits"],
                {leaf: tuple(over) for leaf, over in shapes.items()},
            )
        )

    def write(self, folder: Path) -> Path:
        """Leave `probe.json` and `probe.safetensors` in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        probe = Probe(tuple(self.graphs), tuple(self.generations))
        (folder / PROBE_FILE).write_text(probe.to_json(), encoding="utf-8")
        save_file(self.tensors, folder / TENSORS_FILE)
        return folder

    def _keep(self, prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
        keys = {name: f"{prefix}/{name}" for name in tensors}
        for name, tensor in tensors.items():
            stored = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
            self.tensors[keys[name]] = stored.detach().clone().contiguous()
        return keys


def write_manifest(
    folder: Path, spec: ExportSpec, records: Mapping[str, ComponentRecord]
) -> Manifest:
    """A manifest over everything in `folder`, true to its bytes."""
    manifest = Manifest(
        spec.export_format,
        CheckpointRecord("random", "tests", ()),
        asdict(spec),
        {"resolve": spec.export_format, "sha256": "0" * 64},
        {},
        tuple(records.values()),
        record_files(folder),
    )
    (folder / MANIFEST_FILE).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def rehash(folder: Path) -> None:
    """Make the manifest true again after an edit of a file: a wrong artifact with good hashes."""
    path = folder / MANIFEST_FILE
    manifest = Manifest.from_json(path.read_text(encoding="utf-8"))
    path.write_text(replace(manifest, files=record_files(folder)).to_json(), encoding="utf-8")


def copied(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs whose tensors and caches a call may change."""
    return copy.deepcopy(dict(inputs))
