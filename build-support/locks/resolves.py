"""Which locks there are, and how each is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Iterable


class UnknownResolveError(ValueError):
    """A resolve that has no folder of its own under 3rdparty/."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"no resolve {name!r}: 3rdparty/ has {', '.join(sorted(known))}")


@dataclass(frozen=True)
class LockedResolve:
    """One folder `3rdparty/<name>` with its `requirements.in` and `lock.txt`.

    `python` is the oldest version that the lock serves. The resolves with `shared_pins` are
    compiled together, so that what several need has one version, and its wheel is fetched once.
    `other_index` is one whose packages the index doesn't have: it is compiled only by name, where
    uv is told of theirs (`UV_INDEX`), and may be without a lock.
    """

    name: str
    python: str = "3.11"
    shared_pins: bool = False
    dependencies: bool = True
    other_index: bool = False

    def requirements(self, root: Path) -> Path:
        """The file that people write."""
        return root / "3rdparty" / self.name / "requirements.in"

    def lock(self, root: Path) -> Path:
        """The file that is compiled."""
        return root / "3rdparty" / self.name / "lock.txt"


RESOLVES = (
    LockedResolve("dynamo", shared_pins=True),
    LockedResolve("executorch", shared_pins=True),
    LockedResolve("executorch-cuda", shared_pins=True),
    LockedResolve("executorch-mlx", shared_pins=True),
    LockedResolve("executorch-mlx-nightly", other_index=True),
    LockedResolve("onnx", shared_pins=True),
    LockedResolve("openvino", shared_pins=True),
    LockedResolve("serve-onnx", shared_pins=True),
    LockedResolve("serve-openvino", shared_pins=True),
    LockedResolve("checkpoints", dependencies=False),
    LockedResolve("hub"),
    LockedResolve("executorch-cpp", dependencies=False),
    LockedResolve("peer-optimum"),
    LockedResolve("peer-openvino-genai"),
    LockedResolve("plugin", python="3.9"),
    LockedResolve("pytest", python="3.9"),
    LockedResolve("tools"),
    # What ./pants installs; no resolves of Pants itself.
    LockedResolve("pants", python="3.9"),
    LockedResolve("pex-cli", python="3.9"),
)


def chosen(names: Iterable[str]) -> tuple[LockedResolve, ...]:
    """The resolves of these names, or all that the index has if there are none.

    Raises UnknownResolveError.
    """
    by_name = {resolve.name: resolve for resolve in RESOLVES}
    wanted = tuple(names)
    for name in wanted:
        if name not in by_name:
            raise UnknownResolveError(name, by_name)
    return tuple(by_name[name] for name in wanted) or tuple(
        resolve for resolve in RESOLVES if not resolve.other_index
    )


def locked_elsewhere(root: Path) -> tuple[LockedResolve, ...]:
    """The resolves of another index that someone who reaches it has locked."""
    return tuple(each for each in RESOLVES if each.other_index and each.lock(root).exists())
