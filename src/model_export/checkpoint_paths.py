"""Which file paths of a hub repository may become files of a folder.

Whoever owns a repository names its files, and a lock can be edited by hand: neither is trusted.
Standard library and Python 3.9 only, because Pants and the hub processes import this module.
"""

from __future__ import annotations

import unicodedata
from typing import Dict, Iterable, Tuple

MAX_PATH_BYTES = 1024
MAX_PART_BYTES = 255
# No file system or pattern language reads these as themselves everywhere.
_FORBIDDEN = frozenset('\\:*?"<>|')
_SHOWN_CHARACTERS = 80


class UnsafePathError(ValueError):
    """A path, or a pair of paths, that can't become files: which, and why, in one clause."""


def shown(value: object) -> str:
    """`value` in one short line of ASCII, whatever it holds."""
    text = ascii(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def check_path(path: str) -> None:
    """Check that `path` stays a file inside a folder on every file system.

    It is relative, in parts joined by '/', none of them empty, '.' or '..', without back slashes,
    drive letters, wildcards, control, format, private or unassigned characters, without spaces or
    dots at a part's end, in Unicode's NFC, and at most 1024 bytes long with parts of at most 255.
    The same holds for its NFKC form, to which some file systems and tools reduce it (two of
    U+FF0E are '..'). Raises UnsafePathError.
    """
    try:
        size = len(path.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise UnsafePathError(f"{shown(path)} is no Unicode text") from error
    if size > MAX_PATH_BYTES:
        raise UnsafePathError(f"{shown(path)} is longer than {MAX_PATH_BYTES} bytes")
    if unicodedata.normalize("NFC", path) != path:
        raise UnsafePathError(f"{shown(path)} isn't in Unicode's NFC, so two spellings name it")
    for form in (path, unicodedata.normalize("NFKC", path)):
        _check_form(path, form)


def _check_form(path: str, form: str) -> None:
    if form.count("/") != path.count("/"):
        raise UnsafePathError(f"{shown(path)} has a character that is a '/' in another form")
    if form.startswith("/"):
        raise UnsafePathError(f"{shown(path)} is absolute")
    for character in form:
        if character in _FORBIDDEN:
            raise UnsafePathError(f"{shown(path)} has the character {shown(character)}")
        # Control, format, surrogate, private and unassigned characters; separators but the space.
        category = unicodedata.category(character)
        if category[0] == "C" or (category[0] == "Z" and character != " "):
            raise UnsafePathError(f"{shown(path)} has the invisible character {shown(character)}")
    for part in form.split("/"):
        if not part:
            raise UnsafePathError(f"{shown(path)} has an empty part")
        if part in (".", ".."):
            raise UnsafePathError(f"{shown(path)} has the part {part!r}")
        if part.endswith((".", " ")) or part.startswith(" "):
            raise UnsafePathError(f"{shown(path)} has a part with a space or dot at its end")
        if len(part.encode("utf-8")) > MAX_PART_BYTES:
            raise UnsafePathError(f"{shown(path)} has a part longer than {MAX_PART_BYTES} bytes")


def check_paths(paths: Iterable[str]) -> None:
    """Check each path, and that all can lie in one folder, whether it minds case or not.

    Raises UnsafePathError, also for a path that is there twice, paths or folders of paths that
    differ in case or Unicode form alone, and a file that is a folder of another.
    """
    seen: Dict[str, Tuple[str, bool]] = {}
    for path in paths:
        check_path(path)
        parts = path.split("/")
        for length in range(1, len(parts) + 1):
            here = ("/".join(parts[:length]), length == len(parts))
            key = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", here[0]).casefold())
            known = seen.get(key)
            if known is None:
                seen[key] = here
            elif known[0] != here[0]:
                raise UnsafePathError(
                    f"{shown(known[0])} and {shown(here[0])} differ in case alone"
                )
            elif known[1] != here[1]:
                raise UnsafePathError(f"{shown(here[0])} is a file and a folder")
            elif here[1]:
                raise UnsafePathError(f"{shown(path)} is there twice")
