"""How far back a model's sliding attention sees, from the `config.json` beside its graphs."""

from __future__ import annotations

import json
from pathlib import Path

CONFIG_FILE = "config.json"


def read_window(folder: Path) -> int | None:
    """`sliding_window` of the text model in tokens; None without one, or with it switched off."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        return None
    config = json.loads(path.read_text(encoding="utf-8"))
    config = config.get("text_config") or config
    window = config.get("sliding_window")
    if window is None or not config.get("use_sliding_window", True):
        return None
    return int(window)
