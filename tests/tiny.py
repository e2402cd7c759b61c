"""An engine of two packages that a test builds itself: wheels, their index, their lock. Installed in a second."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_TIME = (2026, 1, 1, 0, 0, 0)
# A module that has what the checks of an engine ask for: it can be imported, and its --help ends with 0.
SERVER = "import sys\nif __name__ == '__main__':\n    print('usage: tiny_server')\n    sys.exit(0)\nANSWER = 4\n"
PACKAGES = {
    ("tiny-server", "1.0"): {"tiny_server/__init__.py": "", "tiny_server/launch.py": SERVER},
    ("tiny-kernel", "2.0"): {"tiny_kernel/__init__.py": "SPEED = 1\n", "tiny_kernel/slow.py": "def run(): return 1\n"},
}
ENGINE = """\
purpose: two packages of a test
package: tiny-server
version: "1.0"
python: ["3.11"]
lock: tiny.lock
contract: sglang-0.5.23.json
cuda: false
download_gb: 0.001
installed_gb: 0.02
versions:
  tiny-kernel: "2.0"
checks:
  imports: [tiny_server, tiny_kernel]
  help: tiny_server.launch
"""


def wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    """Write a wheel of pure Python; the same bytes for the same content."""
    stem = f"{name.replace('-', '_')}-{version}"
    content = {
        **files,
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_urlsafe(text)},{len(text.encode())}\n" for path, text in content.items())
    content[f"{stem}.dist-info/RECORD"] = f"{record}{stem}.dist-info/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as pack:
        for inside, text in content.items():
            pack.writestr(zipfile.ZipInfo(inside, _TIME), text)
    return path


def _urlsafe(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def wheels(folder: Path) -> list[Path]:
    return [wheel(folder, name, version, files) for (name, version), files in PACKAGES.items()]


def lock(paths: Sequence[Path]) -> str:
    """The lock of these wheels, in the form that uv writes."""
    blocks = []
    for path in paths:
        name, version = path.name.split("-")[:2]
        blocks.append(f"{name.replace('_', '-')}=={version} \\\n    --hash=sha256:{sha256(path)}\n    # via tiny.in\n")
    return "".join(sorted(blocks))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def index(folder: Path, paths: Sequence[Path]) -> None:
    """A package index as files, for any web server: simple/<name>/index.html beside the wheels."""
    for path in paths:
        name = path.name.split("-")[0].replace("_", "-")
        page = folder / "simple" / name / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        (page.parent / path.name).write_bytes(path.read_bytes())
        page.write_text(f'<!DOCTYPE html><a href="{path.name}">{path.name}</a>\n')
