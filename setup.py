"""`make wheel`: with KERNELS, a folder of libraries, they go into the wheel, which is then one for x86-64 Linux."""

import os
import runpy
import shutil
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
KERNELS = os.environ.get("KERNELS")
runpy.run_path(str(HERE / "model/supported.py"))


class WithKernels(build_py):
    def run(self):
        super().run()
        if KERNELS and not self.editable_mode:
            sys.path.insert(0, str(HERE))
            from trainer.engine.shipping import ship

            shipped = Path(self.build_lib, "trainer/engine/shipped")
            shutil.rmtree(shipped, ignore_errors=True)
            shipped.mkdir(parents=True)
            for file in ship(Path(KERNELS)):
                shutil.copy(file, shipped)


class ForAnyPython(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


class OfThisMachine(Distribution):
    def has_ext_modules(self):
        return True


if KERNELS:
    setup(cmdclass={"build_py": WithKernels, "bdist_wheel": ForAnyPython}, distclass=OfThisMachine)
else:
    setup()
