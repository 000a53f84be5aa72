"""Whether two exports of one model have the same graphs and the same weights.

Usage: `graph_equality.py FORMAT PLAIN_FOLDER OUR_FOLDER`; exit code 1 if a component differs.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

from model_export.manifest import Manifest


def onnx_digest(graph: Path, weights: Path | None) -> str:
    """Of everything in the graph after our passes, and each initializer's content by name.

    Names that passes give to dimensions included; the place of a tensor in a weights file isn't.
    """
    import onnx_ir

    from model_export.exporter.backends.onnx.engine import transpose_keys
    from model_export.exporter.backends.onnx.passes import normalise

    del weights  # The graph names its own.
    model = onnx_ir.load(graph)
    transpose_keys(model)
    normalise(model, {}, optimize=True)
    digest = hashlib.sha256()
    for owner in model.graphs():
        for name, value in owner.initializers.items():
            tensor = value.const_value
            if tensor is None:
                continue
            digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
            digest.update(tensor.tobytes())
            value.const_value = onnx_ir.ExternalTensor(
                "weights", 0, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name
            )
    digest.update(onnx_ir.to_proto(model).SerializeToString(deterministic=True))
    return digest.hexdigest()


def openvino_digest(graph: Path, weights: Path | None) -> str:
    """Of the IR as OpenVINO writes it again with our attention and names, and its weights."""
    import tempfile

    import openvino

    from model_export.exporter.backends.openvino.engine import write_ir
    from model_export.exporter.backends.openvino.grouped_attention import share_heads
    from model_export.exporter.backends.openvino.stable_names import make_names_stable

    core = openvino.Core()
    model = core.read_model(graph, weights) if weights is not None else core.read_model(graph)
    share_heads(model)
    make_names_stable(model, "graph")
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as folder:
        xml = Path(folder) / "graph.xml"
        write_ir(model, xml)
        for file in (xml, xml.with_suffix(".bin")):
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


_DIGESTS: dict[str, Callable[[Path, Path | None], str]] = {
    "onnx": onnx_digest,
    "openvino": openvino_digest,
}
COMPARABLE = tuple(_DIGESTS)


def main(export_format: str, plain: str, ours: str) -> int:
    """Compare component by component."""
    digest_of = _DIGESTS[export_format]
    entries = json.loads((Path(plain) / "export.json").read_text())["components"]
    manifest = Manifest.from_json((Path(ours) / "manifest.json").read_text())
    different = []
    for record in manifest.components:
        graph = Path(plain) / entries[record.name]["file"]
        weights = Path(ours) / record.weights[0] if record.weights else None
        same = digest_of(graph, None) == digest_of(Path(ours) / record.file, weights)
        print(f"{record.name}: {'equal' if same else 'DIFFERENT'}")
        if not same:
            different.append(record.name)
    return 1 if different or len(entries) != len(manifest.components) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
