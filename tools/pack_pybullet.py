"""Packs PyBullet for a machine that has a C++ compiler and Python's headers, but neither a wheel nor a network.

    python tools/pack_pybullet.py pybullet-3.2.7.tar.gz pybullet-small.tar.gz

The first file is the source distribution (`pip download --no-deps --no-binary :all: pybullet`), 80 MB. The second one has 5 MB:
the sources with a makefile, and of the data what the tasks of ubex need. On the other machine

    mkdir build && tar xf pybullet-small.tar.gz -C build && make -C build -j PYTHON=python3

leaves the folder build/lib, which belongs on PYTHONPATH together with pybullet_envs_gymnasium, a package without machine code.
Sixteen cores take about a minute. Standard library only.
"""

from __future__ import annotations

import io
import re
import sys
import tarfile
from pathlib import PurePosixPath

CODE = (".c", ".cpp", ".h", ".hpp", ".inl", ".inc", "")
"""Endings of sources and headers; those of Eigen, which comes with it, have none."""
PYTHON = "examples/pybullet/gym/"
DATA = f"{PYTHON}pybullet_data/"
KEPT = (f"{PYTHON}pybullet_utils/", f"{DATA}__init__.py", f"{DATA}mjcf/", f"{DATA}plane", f"{DATA}checker")
MAKEFILE = """PYTHON = python3
ask = $(shell $(PYTHON) -c "$(1)")
FLAGS = -O2 -fPIC -DNDEBUG -w {defines} \\
  -I$(call ask,import sysconfig; print(sysconfig.get_paths()['include'])) \\
  -I$(call ask,import numpy; print(numpy.get_include())) {folders}
OBJECTS = {objects}
MODULE = lib/pybullet$(call ask,import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX')))

$(MODULE): $(OBJECTS)
\tg++ -shared -s -o $@ $(OBJECTS) -ldl -lpthread
%.o: %.c
\tgcc $(FLAGS) -c $< -o $@
%.o: %.cpp
\tg++ $(FLAGS) -c $< -o $@
"""


def recipe(setup: str) -> tuple[list[str], list[str], list[str]]:
    """Sources, preprocessor definitions and folders of headers that PyBullet's own setup.py has for Linux."""
    general, _, systems = setup.partition('if _platform == "linux"')
    main, linux = general.partition("egl_renderer_sources")[0], systems.partition("egl_renderer_sources")[0]
    sources = sorted(set(re.findall(r'"((?:src|examples|Extras)/[^"]+\.(?:c|cpp))"', main + linux)))
    defines = [*re.findall(r"^CXX_FLAGS \+= '(-D\S+) '", general, re.M), "-DPYBULLET_USE_NUMPY"]
    defines += re.findall(r"^  CXX_FLAGS \+= '(-\S+) '", linux, re.M)
    module = setup.partition("pybullet_ext = Extension(")[2].partition("])")[0]
    folders = re.findall(r'"((?:src|examples|Extras)[^".]*)"', module)
    return sources, defines, ["examples/ThirdPartyLibs/optionalX11", *folders]


def main(source: str, target: str) -> None:
    """Writes the small archive."""
    with tarfile.open(source) as given, tarfile.open(target, "w:gz") as packed:
        top = given.getnames()[0].split("/")[0]
        setup = given.extractfile(f"{top}/setup.py")
        assert setup is not None
        sources, defines, folders = recipe(setup.read().decode())
        for member in given.getmembers():
            name = member.name.removeprefix(f"{top}/")
            code = PurePosixPath(name).suffix in CODE and not name.startswith(PYTHON)
            if member.isfile() and (code or name.startswith(KEPT)):
                member.name, member.pax_headers = name.replace(PYTHON, "lib/"), {}
                packed.addfile(member, given.extractfile(member))
        objects = " ".join(f"{PurePosixPath(name).with_suffix('.o')}" for name in sources)
        known = {"defines": " ".join(defines), "folders": " ".join(f"-I{name}" for name in folders), "objects": objects}
        text = MAKEFILE.format(**known).encode()
        entry = tarfile.TarInfo("Makefile")
        entry.size = len(text)
        packed.addfile(entry, io.BytesIO(text))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("pack_pybullet: two arguments, the source distribution and the archive to write")
    main(*sys.argv[1:])
