"""Fetches files of a hub checkpoint: `python -m model_export.checkpoints.hub_fetch REQUEST OUTPUT`.

REQUEST is JSON, `{"files": [{"sha256": ..., "size": ...}, ...]}`; OUTPUT a folder that gets each
file under its sha256 as name. From which repository, and as whom, the Pants that starts this tells
it through a socket (`hub_fetch_channel`). The user's own hub cache is asked before the hub.

Ends with exit code 1 and one line on stderr if a file can't be fetched; a file of OUTPUT is whole
and has its sha256, whatever happened.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from model_export.checkpoints.hub_fetch_channel import Channel, ChannelError, FetchOrder, ask
from model_export.checkpoints.hub_fetch_errors import FetchError, HubPlace
from model_export.checkpoints.hub_fetch_files import adopt, cached_files, open_partial
from model_export.checkpoints.hub_fetch_progress import Progress
from model_export.checkpoints.hub_fetch_request import (
    LARGE_BYTES,
    PARTIAL_FOLDER,
    Content,
    FetchRequest,
    shown_size,
)

_PRIVATE_FOLDER = Path(".private")
# What may stand in an HTTP header. Anything else would be quoted in an HTTP library's error.
_AUTHORIZATION = re.compile(r"Bearer [!-~]+")


def fetch(request: FetchRequest, channel: Channel, output: Path) -> None:
    """Put every file of the request into `output`, which must not exist. Raises FetchError."""
    # huggingface_hub reads the environment as it is imported.
    os.environ.update(channel.order.environment)
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    output.mkdir(parents=True)
    total = sum(content.size for content in request.files)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)
        channel.report(line)

    progress = Progress(total, say)
    missing = _from_cache(request, channel.order, output, progress)
    if missing:
        _from_hub(missing, channel.order, output, progress)
    progress.done()


def _from_cache(
    request: FetchRequest, order: FetchOrder, output: Path, progress: Progress
) -> list[Content]:
    """Take what the user's hub cache has; return the rest."""
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE)
    missing = []
    for content in request.files:
        path = order.paths[content.sha256]
        places = cached_files(cache, order.repo, order.commit, path, content.sha256)
        if any(adopt(place, content, output / content.sha256) for place in places):
            progress.have(content.size)
        else:
            missing.append(content)
    return missing


def _from_hub(
    missing: Sequence[Content], order: FetchOrder, output: Path, progress: Progress
) -> None:
    from huggingface_hub import constants
    from huggingface_hub.utils import build_hf_headers

    from model_export.checkpoints.hub_fetch_download import Hub, download

    headers = build_hf_headers(library_name="model-export")
    authorization = headers.get("authorization")
    places = {
        content: HubPlace(
            order.repo,
            order.revision,
            order.commit,
            order.paths[content.sha256],
            authorization is not None,
        )
        for content in missing
    }
    first = places[missing[0]]
    if constants.HF_HUB_OFFLINE:
        raise FetchError(
            first.name,
            f"isn't in the hub cache {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE is set",
            "Unset it, or point HF_HUB_CACHE at a cache that has the locked commit",
        )
    if authorization is not None and not _AUTHORIZATION.fullmatch(authorization):
        raise FetchError(
            first.name,
            "can't be fetched: the token has a character that no token has",
            "Set HF_TOKEN to the token alone, or log in anew: `hf auth login`",
        )
    hub = Hub(constants.ENDPOINT, headers)
    for content, place in places.items():
        partials = Path(PARTIAL_FOLDER) if content.size > LARGE_BYTES else None
        try:
            with open_partial(partials, _PRIVATE_FOLDER, content) as partial:
                download(hub, place, content, partial, progress)
                partial.move_to(output / content.sha256)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise FetchError(
                place.name,
                f"needs {shown_size(content.size)}, and the disk is full",
                "Free some space, and build again: it goes on where it stopped",
            ) from error


def main(arguments: Sequence[str]) -> int:
    """The exit code for a command line."""
    if len(arguments) != 2:
        print("usage: hub_fetch REQUEST OUTPUT", file=sys.stderr)
        return 2
    request = Path(arguments[0]).read_bytes()
    try:
        fetch(FetchRequest.from_json(request), ask(request), Path(arguments[1]))
    except (ChannelError, FetchError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
