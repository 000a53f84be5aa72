"""Makes `executorch.backends.mlx` importable where its wheel lacks half of it.

Upstream symptom (executorch 1.3.1, Linux wheels): "ImportError: MLX delegate generated files not
found". The package's Python code is there, with the generator of what is missing; the macOS wheels
have that generated. `test_wheel_still_lacks_the_generated_files` fails once the Linux ones do, too.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import executorch.backends

from model_export.exporter.backends.executorch.flatc import packaged_flatc
from model_export.exporter.errors import ExportError

_PACKAGE = "executorch.backends.mlx"
_SERIALIZATION = "serialization"
# What a lowering imports of the generated files.
_GENERATED = ("mlx_graph_schema.py", "_generated_serializers.py", "_generated/mlx_delegate")
# The generator also writes C++, for which the wheels have no templates; nothing reads that here.
_TEMPLATES = ("MLXLoader.h.tmpl", "MLXLoader.cpp.tmpl")
_NOT_COPIED = ("__pycache__", "third-party", "test", "examples")

# Kept until the interpreter ends: modules are imported from there. It lies in this process's own
# TMPDIR, never in the wheel's folder, which all exports share.
_folders: list[tempfile.TemporaryDirectory[str]] = []


def wheel_folder() -> Path | None:
    """Where the installed executorch has its MLX backend; None if it has none."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def has_generated_files(folder: Path) -> bool:
    """Whether the MLX backend in `folder` can be imported as it is."""
    return all((folder / _SERIALIZATION / name).exists() for name in _GENERATED)


def use_generated_serializers() -> None:
    """Let `executorch.backends.mlx` be imported, from a complete copy if the wheel's isn't.

    Raises ExportError if the resolve has no MLX backend, or its generator fails.
    """
    folder = wheel_folder()
    if folder is None:
        raise ExportError(
            "resolve",
            f"has an executorch without `{_PACKAGE}`",
            "Use executorch 1.3.1 or newer (3rdparty/executorch-mlx)",
        )
    if has_generated_files(folder):
        return
    temporary = tempfile.TemporaryDirectory(prefix="mlx-")
    _folders.append(temporary)
    copy = Path(temporary.name, "mlx")
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    _generate(copy)
    executorch.backends.__path__.insert(0, temporary.name)


def _generate(folder: Path) -> None:
    """Run the wheel's own generator, which writes beside itself."""
    serialization = folder / _SERIALIZATION
    for name in _TEMPLATES:
        (serialization / name).touch()
    (folder / "runtime").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-I", "generate.py", "--flatc", str(packaged_flatc())],
        cwd=serialization,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    # It goes on without flatc, and says so in a line.
    if done.returncode != 0 or not has_generated_files(folder):
        print(done.stdout, file=sys.stderr)
        raise ExportError(
            "resolve",
            f"has an executorch whose generator of `{_PACKAGE}` fails",
            "See its output above; the resolve executorch-mlx has one that works",
        )
