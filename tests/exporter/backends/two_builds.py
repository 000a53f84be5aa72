"""One export process run twice in surroundings that differ in everything that must not matter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from transformers import PreTrainedModel

import model_export
from model_export.manifest import FileRecord, record_files
from model_export.spec import CheckpointOrigin, ExportRequest, ExportSpec, Toolchain

_ARGUMENTS = ("request.json", "checkpoint", "out", "probe")
_SURROUNDINGS: tuple[tuple[str, Mapping[str, str]], ...] = (
    (
        "one",
        {
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "ATEN_CPU_CAPABILITY": "default",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
            "OPENBLAS_CORETYPE": "Prescott",
            "LC_ALL": "C",
            "TZ": "UTC",
        },
    ),
    (
        "another place/with späces",
        {
            "PYTHONHASHSEED": "4711",
            "OMP_NUM_THREADS": "2",
            "LC_ALL": "de_DE.UTF-8",
            "TZ": "Asia/Tokyo",
        },
    ),
)

LOCAL = CheckpointOrigin("local", "tiny")


def _on_one_cpu() -> None:
    """Let this process, and with it OpenVINO and ONNX Runtime, see one CPU only."""
    if sys.platform == "linux":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def build_twice(
    model: PreTrainedModel,
    spec: ExportSpec,
    folder: Path,
    origin: CheckpointOrigin = LOCAL,
    files: Mapping[str, str] = MappingProxyType({}),
) -> tuple[tuple[FileRecord, ...], tuple[FileRecord, ...]]:
    """The files of both artifacts, manifest included.

    `files` are put into the checkpoint, or in the place of what the model saves. The builds differ
    in folder (that of the code, too), HOME, TMPDIR, locale, time zone, hash seed, thread count and
    the CPU level of torch, oneDNN and OpenBLAS; on Linux, the first has one CPU.
    Fails the test with the process's output if one of them fails.
    """
    request = ExportRequest(spec, origin, Toolchain(spec.export_format, "0" * 64))
    builds = []
    for name, variables in _SURROUNDINGS:
        sandbox = folder / name
        model.save_pretrained(sandbox / "checkpoint")
        for path, text in files.items():
            (sandbox / "checkpoint" / path).write_text(text, encoding="utf-8")
        sources = Path(model_export.__file__).parent
        shutil.copytree(sources, sandbox / "model_export", ignore=shutil.ignore_patterns("*.pyc"))
        (sandbox / "request.json").write_text(request.to_json(), encoding="utf-8")
        home, temporary = sandbox / "home", sandbox / "tmp"
        home.mkdir()
        temporary.mkdir()
        process = subprocess.run(
            [sys.executable, "-m", "model_export.exporter", *_ARGUMENTS],
            cwd=sandbox,
            env={
                "PATH": os.environ.get("PATH", ""),
                "HOME": str(home),
                "TMPDIR": str(temporary),
                **variables,
            },
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=_on_one_cpu if name == "one" else None,
        )
        assert process.returncode == 0, process.stderr
        artifact = sandbox / "out"
        # record_files leaves the manifest out, and the manifest must be equal as well.
        (artifact / "manifest.json").rename(artifact / "manifest.copy.json")
        builds.append(record_files(artifact))
    return builds[0], builds[1]
