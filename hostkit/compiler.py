"""Whether kernels can be compiled on this host: a small one is, by the service user, with what its environment finds.

SGLang, FlashInfer, TileLang and DeepGEMM compile kernels at first use. What is missing then would be found after the
old server was stopped, minutes into the start.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from hostkit import atomic, gpus, paths

# sm_120f, which SGLang and FlashInfer compile for on this card, is unknown to 12.8 (sglang 0.5.23,
# kernels/jit/utils/arch.py).
LEAST_NVCC = (12, 9)
LIMIT_S = 180
# math.h: a C library newer than the toolkit knows declares rsqrt once more (seen with glibc 2.41). cooperative_groups:
# it stops at a toolkit whose headers are not those of its compiler.
_KERNEL = """\
#include <math.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
__global__ void scale(float *values, int count) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) values[at] = rsqrtf(values[at]) + sinf(values[0]);
}
extern "C" int launch(float *values, int count) {
  scale<<<1, 128>>>(values, count);
  return cudaGetLastError();
}
"""


class CannotCompile(Exception):
    """No kernel can be compiled; the message says what is missing and what to do."""


def architectures() -> list[str]:
    """What the kernels of this host's cards are compiled for; sm_120f where there is none to ask."""
    try:
        found = {gpu.compute_capability for gpu in gpus.gpus()}
    except gpus.DriverError:
        found = set()
    return sorted({_target(capability) for capability in found}) or ["sm_120f"]


def _target(capability: str) -> str:
    """As FlashInfer and SGLang choose: the family of 12.0 as a whole, else this architecture's own features.

    nvcc has those from 9.0 on; a card for a display may be older.
    """
    features = "f" if capability == "12.0" else "a" if int(capability.partition(".")[0]) >= 9 else ""
    return f"sm_{capability.replace('.', '')}{features}"


def check(environment: Mapping[str, str]) -> str:
    """Compile for this host's cards in the environment that a unit has; returns what did it. Raises CannotCompile."""
    path, home = environment["PATH"], Path(environment["CUDA_HOME"])
    for program, remedy in (("g++", "apt-get install g++"), ("ninja", "it is part of the engine's lock")):
        if shutil.which(program, path=path) is None:
            raise CannotCompile(f"{program} is not on the PATH of the unit ({path}): {remedy}")
    version = _nvcc_version(home / "bin/nvcc")
    for architecture in architectures():
        _compile(home, path, architecture)
    return f"nvcc {version} compiles for {', '.join(architectures())}"


def check_once(environment: Mapping[str, str], cache: Path) -> str:
    """As check, unless the same compilers did it before for the same cards; that is noted in the cache folder."""
    now = {"cards": architectures(), "compilers": _identities(environment)}
    note = cache / "compiler.json"
    with contextlib.suppress(OSError, ValueError):
        if {**json.loads(note.read_text()), "said": ""} == {**now, "said": ""}:
            return "the compilers are those that compiled before"
    said = check(environment)
    atomic.write(note, json.dumps({**now, "said": said}))
    return said


def _identities(environment: Mapping[str, str]) -> list[str]:
    programs = (f"{environment['CUDA_HOME']}/bin/nvcc", shutil.which("g++", path=environment["PATH"]) or "/g++")
    found = []
    for program in (os.path.realpath(name) for name in programs):
        info = os.stat(program) if os.path.exists(program) else None
        found.append(f"{program} {info.st_size} {info.st_mtime_ns}" if info else f"{program} missing")
    return found


def _nvcc_version(nvcc: Path) -> str:
    remedy = "install a CUDA 13 toolkit, or take an engine whose lock has nvidia-cuda-nvcc"
    try:
        text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotCompile(f"{nvcc} does not run ({type(error).__name__}): {remedy}") from None
    release = re.search(r"release (\d+)\.(\d+)", text)
    if release is None or (int(release[1]), int(release[2])) < LEAST_NVCC:
        found = f"{release[1]}.{release[2]}" if release else "of an unknown version"
        raise CannotCompile(f"{nvcc} is {found}, kernels for this card need 12.9 or newer: {remedy}")
    return f"{release[1]}.{release[2]}"


def _compile(home: Path, path: str, architecture: str) -> None:
    with _folder() as folder:
        command = [str(home / "bin/nvcc"), f"-arch={architecture}", "-std=c++17", "-shared", "-Xcompiler=-fPIC"]
        command += [f"-L{home}/lib64", "-lcudart", "-o", str(folder / "probe.so"), str(folder / "probe.cu")]
        done = subprocess.run(
            command,
            env={"PATH": path, "CUDA_HOME": str(home), "HOME": str(folder), "TMPDIR": str(folder)},
            user=paths.SERVICE_USER,
            group=paths.SERVICE_USER,
            extra_groups=[],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if "error" in line or "fatal" in line]
        told = lines[0].strip()[:240] if lines else f"exit status {done.returncode}"
        raise CannotCompile(f"a kernel for {architecture} does not compile as {paths.SERVICE_USER}: {told}")


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sglang-compiler-") as name:
        (Path(name) / "probe.cu").write_text(_KERNEL)
        shutil.chown(name, paths.SERVICE_USER, paths.SERVICE_USER)
        yield Path(name)
