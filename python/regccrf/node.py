"""The training loss on a CUDA device as an autograd node in C++: less for the host to do in every step. Optional. It is built for the
PyTorch that is there, so on the machine where it is used, once:

    python -m regccrf.node

This takes half a minute and a compiler for C++20 ($CXX, else c++), and leaves a file beside the package. From then on `regccrf.torch`
uses it, unless REGCCRF_NODE=0 is in the environment. (PyTorch's compiled autograd wants that: it cannot look into a node like this.) What
was built for another PyTorch, Python or regccrf is not used, and not in the way.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sysconfig
import warnings
import zlib
from pathlib import Path
from typing import Any, Callable, List, Optional

import torch

from . import _core

PACKAGE, PYTORCH = Path(__file__).parent, Path(torch.__file__).parent
SOURCES = [PACKAGE / "_node.cc", PACKAGE / "_node.h"]


class CannotBuild(Exception):
    """Why, and what to do."""


def _interface() -> List[str]:
    """What PyTorch was compiled with, and what calls it has to be compiled with too."""
    names = [name for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI") if getattr(torch._C, f"_PYBIND11_{name}", None)]
    return [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
            *(f'-DPYBIND11_{name}="{getattr(torch._C, f"_PYBIND11_{name}")}"' for name in names)]


def _name() -> str:
    """The module's, which tells what it was built of and for. The file's ending tells for which Python."""
    made_for = " ".join([torch.__version__, str(torch.version.git_version), *_interface()])
    return f"_node_{zlib.crc32(b''.join([*(source.read_bytes() for source in SOURCES), made_for.encode()])):08x}"


def _fits_the_core() -> bool:
    """Whether the core was compiled with the header that is here."""
    return hashlib.md5(SOURCES[1].read_bytes()).hexdigest() == _core.node_header()


def path() -> Path:
    """Where the node of this PyTorch is, or would be."""
    return PACKAGE / f"{_name()}{sysconfig.get_config_var('EXT_SUFFIX')}"


def _module(where: Path) -> Any:
    spec = importlib.util.spec_from_file_location(_name(), where)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(differentiable_gradients: Callable[..., Any]) -> Optional[Any]:
    """The node, where it was built. The function finds gradients that can themselves be differentiated."""
    try:
        where = path()
        if os.environ.get("REGCCRF_NODE") == "0" or not where.exists() or not _fits_the_core():
            return None
    except OSError:  # without the sources
        return None
    try:
        module = _module(where)
    except ImportError as error:
        warnings.warn(f"{where} cannot be loaded ({error}), so that losses on a device take longer on the host: "
                      "python -m regccrf.node builds it anew")
        return None
    module.use(_core.cuda_loss_calls(), differentiable_gradients, _core.Error)
    return module


def command(output: Path) -> List[str]:
    """How the node is built."""
    headers = [PYTORCH / "include", PYTORCH / "include/torch/csrc/api/include", sysconfig.get_paths()["include"]]
    compiler = shlex.split(os.environ.get("CXX", "")) or ["c++"]
    return [*compiler, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
            f"-DTORCH_EXTENSION_NAME={_name()}", *_interface(), *(f"-isystem{folder}" for folder in headers), str(SOURCES[0]), "-o", str(output),
            f"-L{PYTORCH / 'lib'}", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"]


def _check() -> None:
    """That there is what it takes."""
    if not _core.cuda_built():
        raise CannotBuild("this build of regccrf has no CUDA in it, and the node nothing to do: build regccrf where nvcc is, with REGCCRF_CUDA=ON")
    for source in SOURCES:
        if not source.exists():
            raise CannotBuild(f"{source} is not there, which the package brings: install it again")
    if not _fits_the_core():
        raise CannotBuild(f"the package was compiled with another {SOURCES[1]}: build it again")
    compiler = command(PACKAGE)[0]
    if shutil.which(compiler) is None:
        raise CannotBuild(f"there is no compiler {compiler!r}: install g++ (10 or later), or name another in CXX")
    for header, package in ((Path(sysconfig.get_paths()["include"]) / "Python.h", "python3-dev"),
                            (PYTORCH / "include/torch/csrc/autograd/custom_function.h", "libtorch-dev")):
        if not header.exists():
            raise CannotBuild(f"{header} is not there: on Debian it is in the package {package}")
    if not os.access(PACKAGE, os.W_OK):
        raise CannotBuild(f"{PACKAGE} cannot be written to: run this as somebody who can")


def build() -> Path:
    """Build the node, in the place of one that is there."""
    _check()
    where = path()
    made = where.with_name(f".{os.getpid()}{where.name}")
    try:
        if subprocess.run(command(made)).returncode != 0:
            raise CannotBuild(f"{command(made)[0]} failed, as it says above; it has to know C++20 (g++ 10 or later)")
        _module(made)
        made.replace(where)
    finally:
        if made.exists():
            made.unlink()
    return where


def main() -> None:
    argparse.ArgumentParser(prog="python -m regccrf.node", description=__doc__,
                            formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"regccrf.node: for PyTorch {torch.__version__}, half a minute", flush=True)
    try:
        print(f"regccrf.node: {build()} is there, and will be used")
    except (CannotBuild, ImportError, OSError) as error:
        raise SystemExit(f"regccrf.node: {error}") from None


if __name__ == "__main__":
    main()
