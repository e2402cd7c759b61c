"""`make manifest`: asks the hub (or reads a folder) what a checkpoint's files are, and writes it down.

    make manifest REPO=deepseek-ai/DeepSeek-V4-Flash REV=main       a branch is resolved to its commit
    make manifest NAME=deepseek-v4-flash                            the revision that its YAML names
    make manifest NAME=deepseek-v4-flash FOLDER=/srv/models/...     from files that are here, without a hub

HF_ENDPOINT names another hub or a mirror, TOKEN_FILE a file of mode 600 with the token for a gated repository.
"""

import argparse
import os
import stat
import sys
from pathlib import Path
from typing import Any

from hostkit.listing import NoListing, listing
from serving import manifest
from serving.checkpoint import Checkpoint, load_checkpoint
from serving.plan import GROUP_DATA
from serving.problems import Refused
from serving.site import HUB

CHECKPOINTS = GROUP_DATA / "checkpoints"


class CannotMake(Exception):
    """What was asked for makes no manifest; one line, with the remedy."""


def main(arguments: list[str]) -> int:
    options = _arguments().parse_args(arguments)
    try:
        print(make(options))
    except (Refused, CannotMake, NoListing) as problem:
        print(f"make manifest: {problem}", file=sys.stderr)
        return 2
    return 0


def make(options: argparse.Namespace) -> str:
    """Write the manifest, and say what it holds. Raises Refused, CannotMake, NoListing; then nothing was changed."""
    if not (options.name or options.repo):
        raise CannotMake("say which one: REPO=owner/name, or NAME= a file of group_data/checkpoints/")
    name = options.name or manifest.name_of(options.repo, options.into)
    known = load_checkpoint(options.into, name) if (options.into / f"{name}.yaml").exists() else None
    if known is None and not options.repo:
        raise CannotMake(f"there is no group_data/checkpoints/{name}.yaml: add REPO=owner/name")
    document = _of_folder(options, known) if options.folder else _of_hub(options, known)
    path = manifest.write(document, name, options.into, options.experts)
    what = f"{len(document['files'])} files, {document['total'] / 1e9:.3f} GB"
    return f"{document['repository']}@{document['revision']}: {what}\nwritten: {path}; commit it"


def _of_folder(options: argparse.Namespace, known: Checkpoint | None) -> dict[str, Any]:
    if known is None or known.revision is None:
        raise CannotMake("a folder does not say which revision it holds: write it into the YAML first, or use a hub")
    document = manifest.of_folder(options.folder, known)
    if not document["files"]:
        raise CannotMake(f"{options.folder} holds no files: name the folder that does")
    return document


def _of_hub(options: argparse.Namespace, known: Checkpoint | None) -> dict[str, Any]:
    repository = options.repo or (known.repository if known else "")
    revision = options.rev or (known.revision if known and known.repository == repository else None) or "main"
    document = listing(options.endpoint, repository, revision, _token(options.token_file))
    if document["revision"] != revision:
        print(f"{revision} of {repository} is commit {document['revision']}")
    return document


def _token(file: Path | None) -> str | None:
    if file is None:
        return None
    if not file.is_file() or stat.S_IMODE(file.stat().st_mode) & 0o077:
        raise CannotMake(f"{file} is no file that you alone can read: name one of mode 600 that holds the token")
    return file.read_text(encoding="utf-8").strip()


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make manifest", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name", help="a file of group_data/checkpoints/, without .yaml")
    parser.add_argument("--repo", help="owner/name on the hub")
    parser.add_argument("--rev", help="commit, branch or tag; without it that of the YAML, else main")
    parser.add_argument("--folder", type=Path, help="where the files lie, instead of a hub")
    parser.add_argument("--experts", help="for a new YAML: in which format the experts are")
    parser.add_argument("--token-file", type=Path)
    parser.add_argument("--endpoint", default=os.environ.get("HF_ENDPOINT") or HUB)
    parser.add_argument("--into", type=Path, default=CHECKPOINTS, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
