"""The hub's own side: what a repository is, the listing of its files, and where their contents are."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote, urlencode

from sandbox.model_hub.body import send_file
from sandbox.model_hub.exchange import Exchange, Reply
from sandbox.model_hub.repository import Entry, Revision, UnknownRepository, UnknownRevision


class HubExchange(Exchange):
    """huggingface.co, so to say."""

    side = "hub"

    def route(self) -> None:
        match self.words:
            case ["api", "models", owner, name]:
                self._info(f"{owner}/{name}", "main")
            case ["api", "models", owner, name, "revision", revision]:
                self._info(f"{owner}/{name}", revision)
            case ["api", "models", owner, name, "tree", revision, *folder]:
                self._tree(f"{owner}/{name}", revision, "/".join(folder))
            case [owner, name, "resolve", revision, *file] if file:
                self._resolve(f"{owner}/{name}", revision, "/".join(file))
            case ["-", "settled"]:  # not the hub's: whoever reads the log asks first
                self.context.settle(limit_s=1)
                self.send(204, b"", {})
            case _:
                raise Reply(404, "Sorry, we can't find the page you are looking for.")

    def _revision(self, repository: str, name: str) -> Revision:
        try:
            return self.context.store.revision(repository, name)
        except UnknownRepository:
            # Without a token the hub does not tell whether a repository is private or not there.
            if self.token is None:
                raise Reply(401, "Invalid username or password.", "RepoNotFound") from None
            raise Reply(404, "Repository not found", "RepoNotFound") from None
        except UnknownRevision:
            raise Reply(404, f"Invalid rev id: {name}", "RevisionNotFound") from None

    def _info(self, repository: str, name: str) -> None:
        self.about(repository)
        revision = self._revision(repository, name)
        licence = revision.card.get("license")
        details = self.question("blobs") in ("true", "True", "1")
        gated = self.context.faults.rule("gated", repository)
        self.send_json(
            {
                "_id": hashlib.sha256(repository.encode()).hexdigest()[:24],
                "id": repository,
                "modelId": repository,
                "author": repository.split("/")[0],
                "sha": revision.commit,
                **({"lastModified": date, "createdAt": date} if (date := revision.card.get("date")) else {}),
                "private": False,
                "gated": "manual" if gated else False,
                "disabled": False,
                "tags": [f"license:{licence}"] if licence else [],
                "cardData": {"license": licence} if licence else {},
                "usedStorage": sum(entry.size for entry in revision.files.values()),
                "siblings": [_sibling(path, entry, details) for path, entry in revision.files.items()],
            }
        )

    def _tree(self, repository: str, name: str, folder: str) -> None:
        self.about(repository)
        revision = self._revision(repository, name)
        entries = _listing(revision, folder, self.question("recursive") in ("true", "True", "1"))
        if folder and not entries:
            raise Reply(404, f"{folder} does not exist on {name!r}", "EntryNotFound")
        cut = self.context.faults.find("cut-listing", repository=repository)
        self.note["fault"] = cut and cut.fault
        page = cut.page if cut else min(self.context.page, int(self.question("limit") or self.context.page))
        start = int(self.question("cursor", "0"))
        more = start + page < len(entries) and not cut
        link = {"Link": f'<{self._next(start + page)}>; rel="next"'} if more else {}
        self.send_json(entries[start : start + page], link)

    def _next(self, cursor: int) -> str:
        kept = {name: self.question(name) for name in ("recursive", "expand", "limit") if self.question(name)}
        path = "/".join(quote(word, safe="") for word in self.words)
        return f"http://{self.headers['host']}/{path}?{urlencode({**kept, 'cursor': cursor})}"

    def _resolve(self, repository: str, name: str, file: str) -> None:
        self.about(repository, file)
        self._check_access(repository)
        revision = self._revision(repository, name)
        commit = {"X-Repo-Commit": revision.commit}
        entry = revision.files.get(file)
        if entry is None:
            raise Reply(404, "Entry not found", "EntryNotFound", commit)
        if entry.sha256 is None:
            kind = {"Content-Type": "text/plain; charset=utf-8"}
            send_file(self, revision.folder / file, {**commit, **kind, "ETag": f'"{entry.oid}"'})
        else:
            self._redirect(f"/{repository}/{revision.commit}/{file}", entry, commit)

    def _redirect(self, path: str, entry: Entry, commit: dict[str, str]) -> None:
        target = f"{self.context.cdn}{self.context.signed(path)}"
        linked = {"X-Linked-Size": str(entry.size), "X-Linked-Etag": f'"{entry.sha256}"'}
        headers = {"Location": target, "Accept-Ranges": "bytes", "ETag": f'"{entry.sha256}"', **linked, **commit}
        self.send(302, f"Found. Redirecting to {target}".encode(), headers)

    def _check_access(self, repository: str) -> None:
        rule = self.context.faults.find("gated", repository=repository, file=self.note["file"])
        if rule is None or self.token == rule.token:
            return
        self.note["fault"] = rule.fault
        if self.token is None:
            raise Reply(401, f"Access to model {repository} is restricted. Please log in.", "GatedRepo")
        if not self.token.startswith("hf_"):
            raise Reply(401, "Invalid credentials in Authorization header")
        raise Reply(403, f"Access to model {repository} is restricted and you are not in its list.", "GatedRepo")


def _sibling(path: str, entry: Entry, details: bool) -> dict[str, Any]:
    if not details:
        return {"rfilename": path}
    lfs = entry.lfs and {"sha256": entry.sha256, "size": entry.size, "pointerSize": entry.lfs["pointerSize"]}
    return {"rfilename": path, "size": entry.size, "blobId": entry.oid, **({"lfs": lfs} if lfs else {})}


def _listing(revision: Revision, folder: str, recursive: bool) -> list[dict[str, Any]]:
    below = f"{folder}/" if folder else ""
    folders = {path: {"type": "directory", "oid": tree, "size": 0} for path, tree in revision.folders.items() if path}
    files = {path: _file(entry) for path, entry in revision.files.items()}
    found = {path: entry for path, entry in {**folders, **files}.items() if path.startswith(below)}
    return [
        {**entry, "path": path}
        for path, entry in sorted(found.items())
        if recursive or "/" not in path.removeprefix(below)
    ]


def _file(entry: Entry) -> dict[str, Any]:
    return {"type": "file", "oid": entry.oid, "size": entry.size, **({"lfs": entry.lfs} if entry.lfs else {})}
