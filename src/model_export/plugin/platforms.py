"""The platforms that can build a target."""

from __future__ import annotations

from typing import Any, Iterable, Optional

from pants.engine.platform import Platform
from pants.util.strutil import help_text

from model_export.plugin.field_errors import SpecError, nearest
from model_export.plugin.fields import CheckedNamesField

PLATFORMS = tuple(platform.value for platform in Platform)


def check_platforms(value: Optional[Iterable[str]]) -> None:
    """Raise SpecError for a name that is no platform of Pants, and for none at all."""
    if value is None:
        return
    names = tuple(value)
    if not names:
        raise SpecError("platforms", "is empty, so that nothing could build it", "Remove it")
    for name in names:
        if name not in PLATFORMS:
            raise SpecError("platforms", f"has {name!r}", nearest(name, PLATFORMS))


class PlatformsField(CheckedNamesField):
    alias = "platforms"
    help = help_text(
        f"""
        The platforms that can build this target, of {", ".join(PLATFORMS)}. Default: all.

        On another one `package ::` and `test ::` leave it out with a warning, and fail where it is
        named itself. So it is, whatever this field says, with `config["backend"]` "cuda" on a
        machine without a GPU, be it written here or in the recipe.
        """
    )

    @classmethod
    def check(cls, value: Any) -> None:
        check_platforms(value)
