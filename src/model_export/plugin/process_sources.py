"""The source files that our processes run, read from the plugin's own package.

Each process gets only what it imports, so that an edit elsewhere re-runs nothing. Read as package
resources, they are there as well when the plugin is an installed wheel.
"""

from __future__ import annotations

import ast
import importlib.resources
from dataclasses import dataclass
from importlib.abc import Traversable
from typing import Dict, Iterable, Iterator, List, Optional, Set, Tuple

from pants.engine.fs import CreateDigest, Digest, FileContent
from pants.engine.rules import Get, collect_rules, rule
from pants.util.logging import LogLevel

PACKAGE = "model_export"
_EXPORTER = f"{PACKAGE}.exporter.__main__"
_BACKENDS = f"{PACKAGE}.exporter.backends"


@dataclass(frozen=True)
class ExporterSourcesRequest:
    """The exporter, with the backend of one format and what that imports."""

    export_format: str


@dataclass(frozen=True)
class ModuleSourcesRequest:
    """One module, those it imports by name, and what all of these import of our package."""

    module: str
    by_name: Tuple[str, ...] = ()


def runtime_modules(export_format: str) -> Tuple[str, ...]:
    """The modules that load the artifacts of one format, which the runtime imports by name."""
    return tuple(
        f"{PACKAGE}.runtime.{folder}.{export_format}" for folder in ("graphs", "decoders.cached")
    )


def verifier_modules(export_format: str) -> Tuple[str, ...]:
    """The modules for one format that the verifier imports by name, the runtime's among them."""
    return (*runtime_modules(export_format), f"{PACKAGE}.verifier.structure.{export_format}")


@dataclass(frozen=True)
class ProcessSources:
    """Source files below `model_export/`."""

    digest: Digest


@rule(desc="Read the exporter's sources", level=LogLevel.DEBUG)
async def exporter_sources(request: ExporterSourcesRequest) -> ProcessSources:
    package = importlib.resources.files(PACKAGE)
    # The exporter imports its backend by name. A backend may import another one.
    paths = {
        *import_closure(package, _EXPORTER),
        *import_closure(package, f"{_BACKENDS}.{request.export_format}"),
    }
    return ProcessSources(await Get(Digest, CreateDigest(_contents(package, paths))))


@rule(desc="Read the sources of a process", level=LogLevel.DEBUG)
async def module_sources(request: ModuleSourcesRequest) -> ProcessSources:
    package = importlib.resources.files(PACKAGE)
    modules = (request.module, *request.by_name)
    paths = {path for module in modules for path in import_closure(package, module)}
    return ProcessSources(await Get(Digest, CreateDigest(_contents(package, paths))))


def _contents(package: Traversable, paths: Iterable[str]) -> Tuple[FileContent, ...]:
    return tuple(
        FileContent(f"{PACKAGE}/{path}", package.joinpath(path).read_bytes())
        for path in sorted(paths)
    )


def import_closure(package: Traversable, module: str) -> List[str]:
    """The files of `module` and of all of our modules that it imports, parents included.

    Only `import` statements count, wherever they stand in the file but below `if TYPE_CHECKING`;
    nothing is executed. Raises FileNotFoundError if `module` isn't there.
    """
    found: Dict[str, None] = {}
    waiting = [module]
    seen: Set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        path = _file_of(package, name)
        if path is None:
            if name == module:
                raise FileNotFoundError(f"{PACKAGE} has no module {module}.")
            continue  # A name inside a module, which `from module import name` brought here.
        found[path] = None
        waiting.extend(_parents(name))
        tree = ast.parse(package.joinpath(path).read_bytes(), filename=path)
        for node in _run_time_nodes(tree):
            waiting.extend(_imported(node))
    return sorted(found)


def _run_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those below `if TYPE_CHECKING:`, which no process runs."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and _is_type_checking(node.test):
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return name == "TYPE_CHECKING"


def _parents(module: str) -> Iterator[str]:
    parts = module.split(".")
    for length in range(1, len(parts)):
        yield ".".join(parts[:length])


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    else:
        return
    yield from (name for name in names if name.split(".")[0] == PACKAGE)


def _file_of(package: Traversable, module: str) -> Optional[str]:
    """The path of a module below the package; None if there is no such module."""
    below = module.split(".")[1:]
    if not below:
        return "__init__.py"
    for path in ("/".join(below) + ".py", "/".join((*below, "__init__.py"))):
        if package.joinpath(path).is_file():
            return path
    return None


def rules() -> Iterable[object]:
    return collect_rules()
