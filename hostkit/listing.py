"""What a model hub says of a repository at a revision: every file with size and hash, the commit, the licence.

With the standard library: it runs on the controller (`make manifest`) as well as on a host. The paths are those that
Hugging Face documents for its hub (huggingface.co/docs/hub/api) and that mirrors of it speak: /api/models/.../revision,
and /api/models/.../tree, whose pages are joined by Link headers.
"""

import json
import re
import time
from collections.abc import Iterator
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

_TRIES, _PAUSE_S, _LONGEST_PAUSE_S = 4, 1.0, 60.0
_WITHIN_S = 30.0
_LATER = (408, 425, 429, 500, 502, 503, 504)
_MOST_PAGES = 1000
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class NoListing(Exception):
    """The hub does not say, or says what cannot be right; one line, with the remedy."""


def listing(endpoint: str, repository: str, revision: str, token: str | None = None) -> dict[str, Any]:
    """{repository, revision: the commit, licence, date, total: bytes, files: {path: {size, sha256 | git_blob_id}}}.

    licence and date (of the repository's last change) are null where the hub does not say.
    `revision` may be a branch or tag. sha256 where the hub has a file in LFS, else its git blob id. Raises NoListing.
    """
    hub = _Hub(endpoint.rstrip("/"), repository, token)
    about = hub.ask(f"revision/{quote(revision, safe='')}", f"revision {revision!r}")
    commit, names = _commit(about, revision, hub), _names(about, hub)
    files = dict(_file(entry, hub) for entry in hub.pages(commit) if entry.get("type") == "file")
    if files.keys() != names:
        missing = sorted(names - files.keys()) or sorted(files.keys() - names)
        what = f"lists {len(files)} files and names {len(names)} ({missing[0]} only once)"
        raise NoListing(f"{hub}: {what}: the listing is cut; try again, or another endpoint: HF_ENDPOINT=...")
    return {
        "repository": repository,
        "revision": commit,
        "licence": _licence(about),
        "date": str(about.get("lastModified") or "")[:10] or None,
        "total": sum(file["size"] for file in files.values()),
        "files": dict(sorted(files.items())),
    }


class _Hub:
    """One repository on one hub."""

    def __init__(self, endpoint: str, repository: str, token: str | None) -> None:
        self.endpoint, self.repository, self._token = endpoint, repository, token
        self._opener = build_opener(_NoRedirect)

    def __str__(self) -> str:
        return f"{self.endpoint}/{self.repository}"

    def ask(self, path: str, what: str) -> dict[str, Any]:
        answer, _ = self._get(f"{self.endpoint}/api/models/{self.repository}/{path}", what)
        if not isinstance(answer, dict):
            raise NoListing(f"{self}: its answer is not that of a model hub; check the endpoint")
        return answer

    def pages(self, commit: str) -> Iterator[dict[str, Any]]:
        """The entries of all pages of the listing."""
        url = f"{self.endpoint}/api/models/{self.repository}/tree/{commit}?recursive=true"
        for _ in range(_MOST_PAGES):
            entries, link = self._get(url, f"commit {commit}")
            if not isinstance(entries, list):
                raise NoListing(f"{self}: its listing is not that of a model hub; check the endpoint")
            yield from entries
            following = _NEXT.search(link or "")
            if following is None:
                return
            url = self._here(urljoin(url, following[1]))
        raise NoListing(f"{self}: its listing does not end after {_MOST_PAGES} pages; try another endpoint")

    def _get(self, url: str, what: str) -> tuple[Any, str | None]:
        """JSON and the Link header; another try where the hub is busy. Raises NoListing."""
        problem, wait_s = NoListing(f"{self}: redirects for ever; check the endpoint"), None
        for number in range(_TRIES):
            try:
                with self._open(url) as reply:
                    return json.loads(reply.read()), reply.headers.get("Link")
            except HTTPError as error:
                if error.code in (301, 302, 303, 307, 308):
                    url = self._here(urljoin(url, error.headers.get("Location", "")))  # a repository that was renamed
                    continue
                problem, wait_s = self._refusal(error, what), _retry_after_s(error)
                if error.code not in _LATER:
                    raise problem from None
            except (OSError, ValueError, HTTPException) as error:
                problem, wait_s = NoListing(f"{self}: {error}; check the endpoint, the network and the proxy"), None
            if number + 1 < _TRIES:
                time.sleep(min(_LONGEST_PAUSE_S, _PAUSE_S * 2**number if wait_s is None else wait_s))
        raise problem

    def _open(self, url: str) -> Any:
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {self._token}"} if self._token else {})
        return self._opener.open(Request(url, headers=headers), timeout=_WITHIN_S)  # noqa: S310 (see _here)

    def _here(self, url: str) -> str:
        """The URL, when it leads to the same hub: the token must not go elsewhere. Raises NoListing."""
        if urlsplit(url)[:2] != urlsplit(self.endpoint)[:2]:
            raise NoListing(f"{self}: its listing goes on at {urlsplit(url).netloc}; name that one as the endpoint")
        return url

    def _refusal(self, error: HTTPError, what: str) -> NoListing:
        code = error.headers.get("X-Error-Code", "")
        if code == "RevisionNotFound":
            return NoListing(f"{self}: there is no {what}; see {self}/commits/main")
        if error.code in (401, 403, 404):
            remedy = "check its name, accept its licence there, and name a file that holds your token"
            return NoListing(f"{self}: not there, or not for everybody (HTTP {error.code}); {remedy}")
        return NoListing(f"{self}: HTTP {error.code} {error.reason}; try again later, or another endpoint")


class _NoRedirect(HTTPRedirectHandler):
    """urllib would take the token along, wherever a redirect leads."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _commit(about: dict[str, Any], revision: str, hub: _Hub) -> str:
    commit = str(about.get("sha"))
    if not _COMMIT.fullmatch(commit):
        raise NoListing(f"{hub}: names no commit for {revision!r}; try another endpoint")
    if _COMMIT.fullmatch(revision) and commit != revision:
        raise NoListing(f"{hub}: gives commit {commit} when asked for {revision}; try another endpoint")
    return commit


def _names(about: dict[str, Any], hub: _Hub) -> set[str]:
    siblings = about.get("siblings")
    if not isinstance(siblings, list) or not siblings:
        raise NoListing(f"{hub}: names no files, so a listing that is cut could not be told; try another endpoint")
    return {str(sibling["rfilename"]) for sibling in siblings}


def _licence(about: dict[str, Any]) -> str | None:
    card = about.get("cardData") or {}
    named = card.get("license_name") or card.get("license")
    tags = [str(tag).partition(":")[2] for tag in about.get("tags") or [] if str(tag).startswith("license:")]
    return str(named) if named else next(iter(tags), None)


def _file(entry: dict[str, Any], hub: _Hub) -> tuple[str, dict[str, Any]]:
    path, lfs = str(entry["path"]), entry.get("lfs")
    file = {"size": lfs["size"], "sha256": lfs["oid"]} if lfs else {"size": entry["size"], "git_blob_id": entry["oid"]}
    pattern = _SHA256 if lfs else _COMMIT
    if not pattern.fullmatch(str(lfs["oid"] if lfs else entry["oid"])) or not isinstance(file["size"], int):
        raise NoListing(f"{hub}: gives no size and hash for {path}; try another endpoint")
    return path, file


def _retry_after_s(error: HTTPError) -> float | None:
    value = error.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() else None
