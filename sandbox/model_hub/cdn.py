"""The CDN that large files come from: links that expire, ranges, and no tokens."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from sandbox.model_hub.body import send_file
from sandbox.model_hub.exchange import Exchange, Reply
from sandbox.model_hub.repository import UnknownRepository, UnknownRevision


class CdnExchange(Exchange):
    """Takes only what the hub has signed."""

    side = "cdn"

    def route(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if len(self.words) < 4:
            raise Reply(403, "Access Denied")
        owner, name, commit, *file = self.words
        repository = f"{owner}/{name}"
        self.about(repository, "/".join(file))
        # As storage with signed links does: a token that follows the redirect is an error, and would be a leak.
        if "authorization" in self.headers:
            raise Reply(400, "Only one auth mechanism allowed; the link is signed and a token came with it.")
        self._check_link(path, repository)
        try:
            revision = self.context.store.revision(repository, commit)
        except (UnknownRepository, UnknownRevision):
            raise Reply(404, "The specified key does not exist.") from None
        entry = revision.files.get(self.note["file"])
        if entry is None:
            raise Reply(404, "The specified key does not exist.")
        kind = {"Content-Type": "binary/octet-stream", "ETag": f'"{entry.sha256 or entry.oid}"'}
        send_file(self, revision.folder / self.note["file"], kind)

    def _check_link(self, path: str, repository: str) -> None:
        expired = self.context.faults.find("expired", repository=repository, file=self.note["file"])
        if expired:
            self.note["fault"] = expired.fault
        if expired or not self.context.is_valid(path, self.question("Expires", "0"), self.question("Signature")):
            raise Reply(403, "Request has expired")
