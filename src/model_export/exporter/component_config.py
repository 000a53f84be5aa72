"""Each component with its own config: what is checked of it, and which field an error is of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from model_export.exporter.backend import Backend
from model_export.exporter.errors import ExportError
from model_export.spec import ExportSpec

_CONFIG = "config"


def check_every_config(backend: Backend, spec: ExportSpec) -> None:
    """Raise ExportError if the backend can't build the spec, for any of its components."""
    backend.check(spec)
    for name in spec.component_config:
        with own_config(spec, name) as own:
            backend.check(own)


def check_component_names(spec: ExportSpec, names: Sequence[str]) -> None:
    """Raise ExportError for the config of a component that this export doesn't build."""
    for name in spec.component_config:
        if name not in names:
            raise ExportError(
                f"component_config[{name!r}]",
                "is of no component of this export",
                f"It builds {', '.join(names)}; `components` chooses others",
            )


@contextmanager
def own_config(spec: ExportSpec, name: str) -> Iterator[ExportSpec]:
    """The spec of one component; what fails in the block names the field that the key is from."""
    try:
        yield spec.for_component(name)
    except ExportError as error:
        own = spec.component_config.get(name, {})
        if any(error.subject.startswith(f"{_CONFIG}[{key!r}]") for key in own):
            subject = f"component_config[{name!r}]{error.subject[len(_CONFIG) :]}"
            raise ExportError(subject, error.problem, error.remedy) from error.__cause__
        raise
