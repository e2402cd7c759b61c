"""The CUDA toolkit of an engine: what its wheels bring of it, in the shape that compilers of kernels look for.

FlashInfer, tvm-ffi and SGLang link with -L$CUDA_HOME/lib64 -lcudart, and -L$CUDA_HOME/lib64/stubs -lcuda. The wheels
have no lib64, no libcudart.so without a number, and no stub of the driver's library (flashinfer 0.7.2, jit/cpp_ext.py;
sglang 0.5.23, kernels/jit/utils/compile/toolchain.py).
"""

import os
from pathlib import Path

from hostkit import record

FOLDER = "cuda"
_AS_THEY_ARE = ("bin", "include", "nvvm", "cccl", "lib")
# Where the NVIDIA driver of Debian and Ubuntu has its library; the name without a number is not always there.
_DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"


def make(environment: Path, toolkit: str) -> None:
    """Make <environment>/cuda, a folder of links into `toolkit` (below site-packages)."""
    source, home = record.packages_folder(environment) / toolkit, environment / FOLDER
    (home / "lib64/stubs").mkdir(parents=True)
    for name in _AS_THEY_ARE:
        if (source / name).is_dir():
            _link(home / name, source / name)
    for library in sorted((source / "lib").glob("lib*")):
        plain = library.name.partition(".so.")[0] + ".so" if ".so." in library.name else library.name
        for name in {library.name, plain}:
            _link(home / "lib64" / name, library)
    (home / "lib64/stubs/libcuda.so").symlink_to(_DRIVER)


def _link(link: Path, target: Path) -> None:
    """Relative: the environment is renamed when it is complete."""
    if not link.is_symlink():
        link.symlink_to(os.path.relpath(target, link.parent))
