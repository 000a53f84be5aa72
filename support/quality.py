"""`python -m support.quality OUTPUT ARTIFACT...`: the size of artifacts, and how well they do.

Artifacts of encoders are asked for the nearest of many sentences, those of language models for the
perplexity of a text. OUTPUT gets a JSON list of `Quality`s. Needs the runtime alone.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from model_export.runtime.artifact import read_artifact
from model_export.runtime.decoder import open_decoder
from model_export.runtime.model import Model, load
from support.quality_record import NEAREST, PERPLEXITY, Quality

_MATERIAL = Path(__file__).parent / "quality"
# One token a call: all formats can, whatever their graphs are made for.
_LONGEST = 256


def measure(folder: Path) -> Quality:
    """The size of an artifact's files, and the figure that its kind of model has."""
    artifact = read_artifact(folder)
    manifest = artifact.manifest
    if artifact.generates:
        kind, value = PERPLEXITY, perplexity(folder, _lines("text.txt"))
    else:
        kind, value = NEAREST, nearest(load(folder))
    return Quality(
        name=folder.name,
        export_format=manifest.export_format,
        checkpoint=manifest.checkpoint.identity,
        quantizer=manifest.spec["quantizer"],
        size=sum(file.size for file in manifest.files),
        kind=kind,
        value=value,
    )


def nearest(model: Model) -> float:
    """The share of sentences whose nearest says the same in other words.

    Beside all paraphrases stands a sentence for each that says another thing in almost the same.
    """
    pairs = [json.loads(line) for line in _lines("sentences.jsonl")]
    vectors = model.embed([pair["text"] for pair in pairs])
    others = model.embed([pair[key] for key in ("same", "other") for pair in pairs])
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    others = others / np.linalg.norm(others, axis=1, keepdims=True)
    return float((np.argmax(vectors @ others.T, axis=1) == np.arange(len(pairs))).mean())


def perplexity(folder: Path, lines: Sequence[str]) -> float:
    """Of the first tokens of a text, each after all those before it."""
    artifact = read_artifact(folder)
    ids = load(folder).tokenizer.encode("\n".join(lines))[:_LONGEST]
    decoder = open_decoder(folder, artifact.manifest)
    decoder.start(1, {}, len(ids))
    mask = np.ones((1, 1), np.int64)
    loss = 0.0
    for token, following in itertools.pairwise(ids):
        logits = decoder.feed(np.array([[token]], np.int64), mask)[0].astype(np.float64)
        highest = logits.max()
        loss += highest + math.log(np.exp(logits - highest).sum()) - logits[following]
    return math.exp(loss / (len(ids) - 1))


def _lines(name: str) -> list[str]:
    return (_MATERIAL / name).read_text(encoding="utf-8").splitlines()


def main(argv: list[str]) -> int:
    """Measure each artifact, saying on stderr what came out."""
    output, *folders = argv
    found = []
    for folder in folders:
        quality = measure(Path(folder))
        print(f"{quality.name}: {quality.size} bytes, {quality.value:.4g}", file=sys.stderr)
        found.append(asdict(quality))
    Path(output).write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
