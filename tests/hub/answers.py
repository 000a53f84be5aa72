"""What the test hub and its CDN answer when they behave."""

from __future__ import annotations

from urllib.parse import parse_qs, quote, unquote

from hub.repositories import HubFile, HubRepository
from hub.sending import AnsweringHandler

_MARKERS = ("revision", "tree", "refs", "paths-info")


class CdnHandler(AnsweringHandler):
    """Serves LFS files by their hash to everyone who has the address."""

    def answer(self) -> None:
        content = self.server.hub.stored(self.path.partition("?")[0].strip("/"))
        if content is None:
            self.send(404, b"", {})
        else:
            self.send_content(content, {"Content-Type": "application/octet-stream"})


class HubHandler(AnsweringHandler):
    """Serves the API and small files; redirects to the CDN for those in LFS."""

    def answer(self) -> None:
        path, _, query = self.path.partition("?")
        self.query = parse_qs(query)
        parts = [unquote(part) for part in path.split("/")[1:]]
        if parts[:3] == ["api", "resolve-cache", "models"]:
            self._answer_cached(parts[3:])
        elif parts[:2] == ["api", "models"]:
            self._answer_api(parts[2:])
        elif "resolve" in parts[1:3]:
            at = parts.index("resolve", 1)
            self._answer_file("/".join(parts[:at]), parts[at + 1], "/".join(parts[at + 2 :]))
        else:
            self.send_refusal(404, "", "Not found")

    def _answer_api(self, parts: list[str]) -> None:
        at = next((at for at in (1, 2) if len(parts) > at and parts[at] in _MARKERS), len(parts))
        repository = self._repository("/".join(parts[:at]))
        if repository is None:
            return
        kind, rest = (parts[at], parts[at + 1 :]) if at < len(parts) else ("revision", ["main"])
        if kind == "refs":
            self.send_json(_refs(repository))
            return
        commit = self._commit(repository, rest[0])
        if commit is None:
            return
        if kind == "revision":
            self._answer_info(repository, commit)
        elif kind == "tree":
            self._answer_tree(repository, commit, "/".join(rest[1:]))
        else:
            asked = parse_qs(self.body.decode()).get("paths", [])
            files = repository.commits[commit]
            self.send_json([_entry(path, files[path]) for path in asked if path in files])

    def _answer_info(self, repository: HubRepository, commit: str) -> None:
        blobs = "blobs" in self.query
        siblings = []
        for path, file in repository.commits[commit].items():
            sibling: dict[str, object] = {"rfilename": path}
            if blobs:
                sibling.update(blobId=file.oid, size=file.content.size)
                if file.lfs:
                    sibling["lfs"] = {
                        "sha256": file.content.sha256,
                        "size": file.content.size,
                        "pointerSize": len(file.pointer),
                    }
            siblings.append(sibling)
        document = {
            "id": repository.id,
            "modelId": repository.id,
            "sha": commit,
            "private": repository.private,
            "gated": repository.gated,
            "disabled": False,
            "tags": [f"license:{repository.card['license']}"]
            if "license" in repository.card
            else [],
            "cardData": dict(repository.card),
            "siblings": siblings,
        }
        if "securityStatus" in self.query:
            document["securityRepoStatus"] = {"scansDone": True, "filesWithIssues": []}
        self.send_json(document)

    def _answer_tree(self, repository: HubRepository, commit: str, below: str) -> None:
        prefix = f"{below}/" if below else ""
        entries: dict[str, dict[str, object]] = {}
        for path, file in sorted(repository.commits[commit].items()):
            if not path.startswith(prefix):
                continue
            inner = path[len(prefix) :].split("/")
            for length in range(1, len(inner)):
                folder = prefix + "/".join(inner[:length])
                entries.setdefault(
                    folder, {"type": "directory", "path": folder, "oid": "0" * 40, "size": 0}
                )
            entries[path] = _entry(path, file)
        if "true" not in [value.lower() for value in self.query.get("recursive", [])]:
            entries = {
                path: entry for path, entry in entries.items() if "/" not in path[len(prefix) :]
            }
        if not entries:
            self.send_refusal(404, "EntryNotFound", f"{below} does not exist")
            return
        start = int(self.query.get("cursor", ["0"])[0])
        stop = start + self.server.hub.tree_page
        headers = {}
        if stop < len(entries):
            kept = "&".join(
                f"{name}={quote(values[0])}"
                for name, values in self.query.items()
                if name != "cursor"
            )
            address = f"{self.server.hub.endpoint}{self.path.partition('?')[0]}"
            headers["Link"] = f'<{address}?{kept}&cursor={stop}>; rel="next"'
        self.send_json(list(entries.values())[start:stop], headers)

    def _answer_file(self, repo_id: str, revision: str, path: str) -> None:
        repository = self._repository(repo_id)
        commit = None if repository is None else self._commit(repository, revision)
        if repository is None or commit is None or not self._may_read(repository):
            return
        file = repository.commits[commit].get(path)
        if file is None:
            self.send_refusal(404, "EntryNotFound", "Entry not found")
            return
        headers = {"X-Repo-Commit": commit}
        if file.lfs:
            headers.update(
                {
                    "ETag": f'"{file.content.sha256}"',
                    "X-Linked-Etag": f'"{file.content.sha256}"',
                    "X-Linked-Size": str(file.content.size),
                    "Location": f"{self.server.hub.cdn}/{file.content.sha256}?signature=signed",
                }
            )
            self.send(302, b"", headers)
            return
        # As the hub does: small files come from a cache on the same host.
        headers.update(
            {
                "X-Linked-Etag": f'"{file.oid}"',
                "X-Linked-Size": str(file.content.size),
                "Location": f"/api/resolve-cache/models/{repo_id}/{commit}/{quote(path)}",
            }
        )
        self.send(307, b"", headers)

    def _answer_cached(self, parts: list[str]) -> None:
        at = next(at for at in (1, 2) if len(parts[at]) == 40)
        repository = self._repository("/".join(parts[:at]))
        if repository is None or not self._may_read(repository):
            return
        file = repository.commits.get(parts[at], {}).get("/".join(parts[at + 1 :]))
        if file is None:
            self.send_refusal(404, "EntryNotFound", "Entry not found")
            return
        self.send_content(file.content, {"X-Repo-Commit": parts[at], "ETag": f'"{file.oid}"'})

    def _repository(self, repo_id: str) -> HubRepository | None:
        """The repository, if whoever asks may know of it; the answer is sent otherwise."""
        hub = self.server.hub
        if repo_id in hub.renamed:
            address = self.path.replace(f"/{repo_id}", f"/{hub.renamed[repo_id]}", 1)
            self.send(307, b"", {"Location": address})
            return None
        sent = self.headers.get("Authorization")
        if sent is not None and self._opened() is None:
            self.send_refusal(401, "", "Invalid credentials in Authorization header")
            return None
        repository: HubRepository | None = hub.repositories.get(repo_id)
        if repository is None or (repository.private and not self._is_let_in(repository)):
            # The hub tells nobody whether a repository is private or isn't there.
            if sent is None:
                self.send_refusal(401, "RepoNotFound", "Invalid username or password.")
            else:
                self.send_refusal(404, "RepoNotFound", "Repository not found")
            return None
        return repository

    def _commit(self, repository: HubRepository, revision: str) -> str | None:
        commit = repository.resolve(revision)
        if commit is None:
            self.send_refusal(404, "RevisionNotFound", f"Invalid rev id: {revision!a}")
        return commit

    def _may_read(self, repository: HubRepository) -> bool:
        if not repository.gated or self._is_let_in(repository):
            return True
        known = self.headers.get("Authorization") is not None
        self.send_refusal(
            403 if known else 401,
            "GatedRepo",
            f"Access to model {repository.id} is restricted",
        )
        return False

    def _is_let_in(self, repository: HubRepository) -> bool:
        return repository.id in (self._opened() or ())

    def _opened(self) -> frozenset[str] | None:
        """The ids that the sent token opens; None for no token or one that the hub doesn't know."""
        token = (self.headers.get("Authorization") or "").partition("Bearer ")[2]
        opened: frozenset[str] | None = self.server.hub.tokens.get(token)
        return opened


def _entry(path: str, file: HubFile) -> dict[str, object]:
    entry: dict[str, object] = {
        "type": "file",
        "path": path,
        "oid": file.oid,
        "size": file.content.size,
    }
    if file.lfs:
        entry["lfs"] = {
            "oid": file.content.sha256,
            "size": file.content.size,
            "pointerSize": len(file.pointer),
        }
    return entry


def _refs(repository: HubRepository) -> dict[str, list[dict[str, str]]]:
    kinds = {"branches": "refs/heads/", "tags": "refs/tags/", "pullRequests": "refs/pr/"}
    found: dict[str, list[dict[str, str]]] = {"converts": []}
    for kind, prefix in kinds.items():
        found[kind] = [
            {"name": ref[len(prefix) :], "ref": ref, "targetCommit": commit}
            for ref, commit in repository.refs.items()
            if ref.startswith(prefix)
        ]
    return found
