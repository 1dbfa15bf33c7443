"""`make wheel`: with KERNELS, a folder of libraries, they go into the wheel, which is then one for Linux on ARCH, by
default this machine.
"""

import os
import platform
import runpy
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
runpy.run_path(str(HERE / "model/supported.py"))  # before setuptools: an old Python's lacks what is imported here

from setuptools import Distribution, setup  # noqa: E402
from setuptools.command.bdist_wheel import bdist_wheel  # noqa: E402
from setuptools.command.build_py import build_py  # noqa: E402

KERNELS = os.environ.get("KERNELS")
ARCH = os.environ.get("ARCH") or platform.machine()


class WithKernels(build_py):
    def run(self):
        super().run()
        if KERNELS and not self.editable_mode:
            sys.path.insert(0, str(HERE))
            from trainer.engine.shipping import ship

            shipped = Path(self.build_lib, "trainer/engine/shipped")
            shutil.rmtree(shipped, ignore_errors=True)
            shipped.mkdir(parents=True)
            for file in ship(Path(KERNELS), machine=ARCH):
                shutil.copy(file, shipped)


class ForAnyPython(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", f"linux_{ARCH}")


class OfThisMachine(Distribution):
    def has_ext_modules(self):
        return True


if KERNELS:
    setup(cmdclass={"build_py": WithKernels, "bdist_wheel": ForAnyPython}, distclass=OfThisMachine)
else:
    setup()
