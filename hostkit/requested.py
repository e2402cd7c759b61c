"""What a checkpoint job is asked for: its files, where they may come from, and with which token."""

from pathlib import Path, PurePosixPath
from typing import Any

from hostkit import adopt, partial
from hostkit.contents import Expected

Files = dict[str, Expected]


class Refused(Exception):
    """It cannot be brought; the message says why and what to do."""


def files(request: dict[str, Any]) -> Files:
    """Those of the manifest, or as the hub lists them. Raises Refused."""
    found: Files = request["files"] or _listed(request)
    _refuse_names(found)
    return found


def adoptable(part: partial.Part, request: dict[str, Any]) -> Path | None:
    return None if part.whole else adopt.find(request["adopt"], request["repository"], request["revision"], part)


def source(place: str, opened: partial.Partial, request: dict[str, Any]) -> Any:
    from hostkit import sources

    if place.startswith("/"):
        found = {
            part.name: adopt.find([place], request["repository"], request["revision"], part) for part in opened.parts
        }
        return sources.Folder(place, {name: path for name, path in found.items() if path})
    return sources.Hub(place, request["repository"], request["revision"], _token(request, place))


def _listed(request: dict[str, Any]) -> Files:
    """As the first hub lists them that does. Raises Refused."""
    from hostkit import listing

    problems = []
    for hub in [place for place in request["sources"] if not place.startswith("/")]:
        try:
            found: Files = listing.listing(hub, request["repository"], request["revision"], _token(request, hub))[
                "files"
            ]
            return found
        except listing.NoListing as problem:
            problems.append(str(problem))
    raise Refused("; ".join(problems) or "its files are unknown, and hub_mirrors names no hub: make manifest")


def _token(request: dict[str, Any], hub: str) -> str | None:
    """For the first hub alone, from a file of root's: it is on no command line, in no environment and in no request."""
    first = next((place for place in request["sources"] if not place.startswith("/")), None)
    path = request["token_file"] if hub == first else None
    try:
        return Path(path).read_text().strip() if path else None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None


def _refuse_names(files: Files) -> None:
    for name in files:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or parts[0] == partial.OWN or not name.isprintable():
            raise Refused(f"the manifest names {name!r}, which is no file below the checkpoint's folder")
