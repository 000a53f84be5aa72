"""Whether the folder is what its manifest says, before anything in it is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from model_export.exporter.errors import ExportError
from model_export.exporter.leaks import build_paths, check_no_leak
from model_export.manifest import MANIFEST_FILE, FileRecord, Manifest, sha256_of
from model_export.verifier.results import Check

# Part of the path of the folder that Pants ran the export in.
_SANDBOX = b"pants-sandbox-"


def check_files(artifact: Path, manifest: Manifest) -> tuple[Check, ...]:
    """Every file of the manifest with its size and hash, no other file, and no path in them."""
    return (
        Check(
            "files", next(_wrong_files(artifact, manifest), None), {"files": len(manifest.files)}
        ),
        Check("weights", next(_wrong_weights(manifest), None)),
        Check("paths of the build machine", _leak(artifact)),
    )


def _wrong_files(artifact: Path, manifest: Manifest) -> Iterator[str]:
    recorded = {record.path: record for record in manifest.files}
    for path, record in recorded.items():
        yield from _wrong_file(artifact, path, record)
    for found in sorted(artifact.rglob("*")):
        name = found.relative_to(artifact).as_posix()
        if name == MANIFEST_FILE or name in recorded:
            continue
        if found.is_symlink() or not found.is_dir():
            yield f"`{name}` is in the artifact, but not in its manifest"


def _wrong_file(artifact: Path, path: str, record: FileRecord) -> Iterator[str]:
    location = artifact / path
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        yield f"`{path}` of the manifest is outside the artifact"
    elif not location.is_file():
        yield f"`{path}` of the manifest is missing"
    elif not location.resolve().is_relative_to(artifact.resolve()):
        yield f"`{path}` is a link to a file outside the artifact"
    elif (size := location.stat().st_size) != record.size:
        yield f"`{path}` has {size} bytes (expected {record.size})"
    elif (digest := sha256_of(location)) != record.sha256:
        yield f"`{path}` has the sha256 {digest[:16]}... (expected {record.sha256[:16]}...)"


def _wrong_weights(manifest: Manifest) -> Iterator[str]:
    paths = {record.path for record in manifest.files}
    if not manifest.components:
        yield "The manifest lists no component"
    for component in manifest.components:
        for file in (component.file, *component.weights):
            if file not in paths:
                yield f"`{component.name}` reads `{file}`, which is no file of the manifest"


def _leak(artifact: Path) -> str | None:
    try:
        check_no_leak(artifact, (*build_paths(Path.cwd()), _SANDBOX))
    except ExportError as error:
        path = error.problem.rpartition(": ")[2]
        return f"`{error.subject}` holds a path of the machine that built it: {path}"
    return None
