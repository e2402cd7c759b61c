"""hostkit as it travels: one file for the host, and a part of it small enough for a command line."""

import base64
import hashlib
import io
import json
import zipfile
import zlib
from functools import cache
from pathlib import Path

HOSTKIT = Path(__file__).resolve().parent.parent / "hostkit"
# What the look needs, in the order in which the modules import each other.
LOOK_MODULES = (
    "paths",
    "atomic",
    "stamps",
    "ours",
    "processes",
    "gpus",
    "systemd",
    "intent",
    "hold",
    "identify",
    "owner",
    "unmanaged",
    "under_way",
    "integrity",
    "started",
    "inspection",
)
_MAIN = "import sys\nfrom hostkit.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
_LOADER = """
import json, sys, types, zlib, base64
package = sys.modules["hostkit"] = types.ModuleType("hostkit")
package.__path__ = []
for name, source in json.loads(zlib.decompress(base64.b64decode(sys.argv[1]))):
    module = sys.modules["hostkit." + name] = types.ModuleType("hostkit." + name)
    setattr(package, name, module)
    exec(compile(source, "hostkit/" + name + ".py", "exec"), module.__dict__)
print(json.dumps(package.inspection.inspect(json.loads(sys.argv[2]))))
"""


@cache
def archive() -> bytes:
    """hostkit.pyz: the same bytes for the same sources, wherever and whenever it is made (so it is not compressed)."""
    buffer = io.BytesIO(b"")
    buffer.write(b"#!/usr/bin/python3\n")
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as pack:
        for name, source in [("__main__.py", _MAIN), *_sources()]:
            entry = zipfile.ZipInfo(name, date_time=(2026, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            pack.writestr(entry, source, zipfile.ZIP_STORED)
    return buffer.getvalue()


def _sources() -> list[tuple[str, str]]:
    return [(f"hostkit/{path.name}", path.read_text(encoding="utf-8")) for path in sorted(HOSTKIT.glob("*.py"))]


@cache
def digest() -> str:
    """Names the archive on a host."""
    return hashlib.sha256(archive()).hexdigest()[:16]


@cache
def look_program() -> tuple[str, str]:
    """(loader, modules): `python3 -c LOADER MODULES REQUEST` prints the look, and leaves nothing on the host."""
    modules = [(name, (HOSTKIT / f"{name}.py").read_text(encoding="utf-8")) for name in LOOK_MODULES]
    return _LOADER, base64.b64encode(zlib.compress(json.dumps(modules).encode(), 9)).decode()
