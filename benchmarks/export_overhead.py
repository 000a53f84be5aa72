"""What an export costs beside the plain script that calls `transformers.exporters` directly.

    ./pants run benchmarks:export_overhead                 # ONNX; SmolLM2
    ./pants run benchmarks:export_overhead_openvino        # or _dynamo, _executorch
    ./pants run benchmarks:export_overhead -- --checkpoint FOLDER

Both export prefill and multi-token decode of a generating checkpoint, in processes of their own,
one after the other: the script through `export_for_generation` and `save_pretrained`, ours through
the export process as the plugin starts it. Prints the cost of both and their ratio, and whether the
graphs are equal.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.graph_equality import COMPARABLE
from benchmarks.measured_process import Cost, import_path, measure

from model_export.spec import CheckpointOrigin, ExportRequest, ExportSpec, Toolchain

# Every key with its default, as the plugin writes them out; but dynamic.
_CONFIG: dict[str, Any] = {
    "dynamic": True,
    "strict": False,
    "dynamic_shapes": None,
    "prefer_deferred_runtime_asserts_over_guards": False,
}
_OWN_CONFIG: dict[str, dict[str, Any]] = {
    "dynamo": {},
    "executorch": {
        "backend": "xnnpack",
        "alloc_graph_input": True,
        "alloc_graph_output": True,
        "alloc_mutable_buffers": True,
    },
    "onnx": {
        "opset_version": None,
        "optimize": True,
        "ort_fusions": None,
        "external_data": True,
        "export_params": True,
        "keep_initializers_as_inputs": False,
    },
    "openvino": {"compress_to_fp16": False, "stateful": True},
}
# A dependency of the benchmark's target, beside the sources.
_SMOLLM2 = Path(__file__).resolve().parent.parent / "targets" / "smollm2"
# What the export process says on stderr.
_STEP = re.compile(r"[a-z][a-z ]+: \d+\.\d s")
_TEXTS = ("Hello, world! How are you today?", "Hi there")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--checkpoint",
        type=Path,
        default=_SMOLLM2,
        help="a folder with config.json and safetensors; default: that of targets:smollm2",
    )
    parser.add_argument("--format", help="default: the format that this resolve has")
    parser.add_argument("--keep", type=Path, help="leave artifacts and logs in this folder")
    options = parser.parse_args()
    export_format = options.format or _installed_format()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        return _compare(export_format, options.checkpoint.resolve(), options.keep.resolve())
    with tempfile.TemporaryDirectory() as folder:
        return _compare(export_format, options.checkpoint.resolve(), Path(folder))


def _installed_format() -> str:
    for name in ("openvino", "executorch", "onnxruntime"):
        if importlib.util.find_spec(name) is not None:
            return {"onnxruntime": "onnx"}.get(name, name)
    return "dynamo"


def _compare(export_format: str, checkpoint: Path, folder: Path) -> int:
    config = {**_CONFIG, **_OWN_CONFIG[export_format]}
    request = ExportRequest(
        ExportSpec(
            export_format,
            config,
            for_generation=True,
            multi_token_decode=True,
            components=("prefill", "decode"),
            sample_inputs={"text": list(_TEXTS)},
        ),
        CheckpointOrigin("local", checkpoint.name),
        Toolchain(export_format, "0" * 64),
    )
    (folder / "request.json").write_text(request.to_json(), encoding="utf-8")
    script = str(Path(__file__).with_name("plain_export.py"))
    print(f"{export_format}: the plain script ...", flush=True)
    plain = measure(
        [script, export_format, str(checkpoint), "plain", *_TEXTS], folder, folder / "plain.log"
    )
    print(f"{export_format}: the export process ...", flush=True)
    ours = measure(
        ["-m", "model_export.exporter", "request.json", str(checkpoint), "artifact", "probe"],
        folder,
        folder / "ours.log",
    )
    _report(plain, ours, folder, checkpoint)
    if export_format not in COMPARABLE:
        print(f"graphs: not compared for {export_format}")
        return 0
    comparison = Path(__file__).with_name("graph_equality.py")
    return subprocess.run(
        [sys.executable, comparison, export_format, folder / "plain", folder / "artifact"],
        env={"PYTHONPATH": import_path(), "CI": "true"},
        check=False,
    ).returncode


def _report(plain: Cost, ours: Cost, folder: Path, checkpoint: Path) -> None:
    weights = sum(file.stat().st_size for file in checkpoint.glob("*.safetensors"))
    rows = [
        ("CPU s", plain.cpu, ours.cpu),
        ("wall s", plain.wall, ours.wall),
        ("peak MB", plain.peak / 1e6, ours.peak / 1e6),
        ("size MB", _size(folder / "plain") / 1e6, _size(folder / "artifact") / 1e6),
    ]
    print(f"{'':10}{'script':>10}{'ours':>10}{'ratio':>8}")
    for name, before, after in rows:
        print(f"{name:10}{before:10.1f}{after:10.1f}{after / before:8.2f}")
    print(f"peak memory over the checkpoint's {weights / 1e6:.0f} MB: {ours.peak / weights:.2f}x")
    print("ours, by step, in wall time; the script records no probe to verify with:")
    for line in (folder / "ours.log").read_text(errors="replace").splitlines():
        if _STEP.fullmatch(line):
            print(f"  {line}")


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    sys.exit(main())
