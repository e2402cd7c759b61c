"""Makes the manifest of a checkpoint from a folder that holds its files: `make manifest NAME=... FOLDER=...`."""

import argparse
import hashlib
import sys
from pathlib import Path

import yaml

from serving.checkpoint import load_checkpoint
from serving.plan import GROUP_DATA
from serving.problems import Refused


def files_of(folder: Path) -> dict[str, dict[str, int | str]]:
    """Size in bytes and sha256 of every file below the folder; hidden files are a client's own and are left out."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    visible = [path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    found: dict[str, dict[str, int | str]] = {}
    for number, path in enumerate(visible, start=1):
        print(f"{number}/{len(visible)} {path.relative_to(folder)}", file=sys.stderr)
        found[str(path.relative_to(folder))] = {"size": path.stat().st_size, "sha256": _sha256(path)}
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _with_files(text: str, files: dict[str, dict[str, int | str]]) -> str:
    """The YAML with its `files` replaced; what stands above, comments too, is kept."""
    head = text.split("\nfiles:")[0]
    return f"{head}\n{yaml.safe_dump({'files': files}, sort_keys=True)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="a file of group_data/checkpoints/, without .yaml")
    parser.add_argument("folder", type=Path, help="where the repository's files lie")
    options = parser.parse_args()
    folder = GROUP_DATA / "checkpoints"
    try:
        load_checkpoint(folder, options.name)
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return 2
    files = files_of(options.folder)
    if not files:
        print(f"{options.folder} holds no files", file=sys.stderr)
        return 2
    path = folder / f"{options.name}.yaml"
    path.write_text(_with_files(path.read_text(encoding="utf-8"), files), encoding="utf-8")
    total = sum(int(file["size"]) for file in files.values())
    print(f"{path.relative_to(GROUP_DATA.parent)}: {len(files)} files, {total} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
