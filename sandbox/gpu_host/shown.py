"""What the machine sees of this computer's GPUs: device nodes, the driver's own libraries and nvidia-smi, CUDA."""

from __future__ import annotations

import re
import shutil
import stat
from pathlib import Path

from sandbox.commands import run

# Where some images keep the driver in one folder; elsewhere its files lie among those of the distribution.
DRIVER = Path("/usr/local/nvidia")
TOOLKIT = Path("/usr/local/cuda")
_NODE = re.compile(r"nvidia(\d+|ctl|-uvm|-uvm-tools)")
_LIBRARY = re.compile(r"\s(lib(?:cuda|nvidia|nvcuvid)[\w.-]*)\s.*x86-64.*=> (\S+)")


def nodes() -> list[str]:
    """The device nodes that a CUDA process opens."""
    found = (path for path in sorted(Path("/dev").glob("nvidia*")) if _NODE.fullmatch(path.name))
    return [str(path) for path in found if stat.S_ISCHR(path.stat().st_mode)]


def files() -> dict[str, str]:
    """Path here to path inside, of the driver's user part and of the CUDA toolkit; what is not here is left out."""
    toolkit = {str(TOOLKIT.resolve()): str(TOOLKIT)} if TOOLKIT.exists() else {}
    if DRIVER.is_dir():
        return {str(DRIVER): str(DRIVER), **toolkit}
    tool = shutil.which("nvidia-smi")
    return {**_libraries(), **({str(Path(tool).resolve()): "/usr/bin/nvidia-smi"} if tool else {}), **toolkit}


def _libraries() -> dict[str, str]:
    found = (_LIBRARY.search(line) for line in run("ldconfig", "-p").splitlines())
    # By its name here and not its file: several names are one file, and each is looked for.
    return {one[2]: f"/usr/lib/x86_64-linux-gnu/{one[1]}" for one in found if one}
