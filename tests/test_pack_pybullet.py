"""The small archive of PyBullet: what is in it, and that its makefile is that of PyBullet's own setup.py."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pack_pybullet

SETUP = """
CXX_FLAGS = ''
CXX_FLAGS += '-DONE '
sources = ["examples/pybullet/pybullet.c"]\\
+["src/LinearMath/all.cpp"]
egl_renderer_sources = ["examples/OpenGLWindow/egl.cpp"]
if 'BT_USE_EGL' in CXX_FLAGS:
  sources += ['examples/never.c']
if _platform == "linux" or _platform == "linux2":
  CXX_FLAGS += '-DTWO '
  sources = sources + ["examples/ThirdPartyLibs/enet/unix.c"]
  egl_renderer_sources = egl_renderer_sources + ["examples/OpenGLWindow/other.cpp"]
elif _platform == "win32":
  sources = sources + ["examples/ThirdPartyLibs/enet/win32.c"]
pybullet_ext = Extension(
    "pybullet",
    sources=sources,
    include_dirs=include_dirs + [
        "src", "examples/ThirdPartyLibs",
    ])
other = Extension("eglRenderer", include_dirs=["examples"])
"""
FILES = {
    "setup.py": SETUP,
    "src/LinearMath/all.cpp": "",
    "src/LinearMath/all.h": "",
    "src/notes.txt": "",
    "examples/ThirdPartyLibs/Eigen/Dense": "",
    "examples/pybullet/pybullet.c": "",
    "examples/pybullet/gym/pybullet_data/mjcf/half_cheetah.xml": "",
    "examples/pybullet/gym/pybullet_data/duck.obj": "",
    "examples/pybullet/gym/pybullet_envs/deep.c": "",
    "examples/pybullet/gym/pybullet_utils/bullet_client.py": "",
}


def test_the_archive_has_what_a_build_needs_and_no_more(tmp_path: Path) -> None:
    source, target = tmp_path / "pybullet-9.tar.gz", tmp_path / "small.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        for name, text in FILES.items():
            entry = tarfile.TarInfo(f"pybullet-9/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    pack_pybullet.main(str(source), str(target))
    with tarfile.open(target) as archive:
        assert sorted(archive.getnames()) == [
            "Makefile",
            "examples/ThirdPartyLibs/Eigen/Dense",
            "examples/pybullet/pybullet.c",
            "lib/pybullet_data/mjcf/half_cheetah.xml",
            "lib/pybullet_utils/bullet_client.py",
            "src/LinearMath/all.cpp",
            "src/LinearMath/all.h",
        ]
        archive.extractall(tmp_path, filter="data")
    words = ["make", "-n", "-C", str(tmp_path), f"PYTHON={sys.executable}"]
    missing = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "unix.o" in missing.stderr, "a source of Linux that is not there is missed, so it is asked for"
    sources, flags, folders = pack_pybullet.recipe(SETUP)
    assert sources == ["examples/ThirdPartyLibs/enet/unix.c", "examples/pybullet/pybullet.c", "src/LinearMath/all.cpp"]
    assert flags == ["-DONE", "-DPYBULLET_USE_NUMPY", "-DTWO"]
    assert folders == ["examples/ThirdPartyLibs/optionalX11", "src", "examples/ThirdPartyLibs"]
