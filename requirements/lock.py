"""`make lock`: write the hashes of all files of what constraints.txt pins. Needs uv, which asks the index.

They serve every Python that setup.cfg names. Each file can be given to `pip install --require-hashes --no-deps -r`:

    core.txt        what the package and a cluster need (setup.cfg), but torch; setuptools, which builds it
    test.txt        what the tests, the linter and the type checker need besides
    audit.txt       what `make audit` needs besides
    torch-cpu.txt   torch's CPU build, whose wheel is an argument: the default index does not have it
    torch-cuda.txt  the build on the default index, and what that needs besides, on x86-64 Linux

torch is apart because pip prefers a file whose hash the index has told it to one that lies on a disk: given a
line with the hashes of both builds, it takes the CUDA build wherever an index has it.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

HERE = Path(__file__).parent
NVRTC = "nvidia-cuda-nvrtc"
"""It comes with torch's build for GPUs; tests need it with any build."""
HEAD = "# Made by `make lock` of constraints.txt and setup.cfg.\n"


SETUP = ConfigParser()
SETUP.read("setup.cfg")


def pythons() -> list[str]:
    """The minor versions of Python that setup.cfg names, as 3.12."""
    return re.findall(r"Python :: (\d+\.\d+)", SETUP["metadata"]["classifiers"])


def compiled(*extras: str) -> dict[str, str]:
    """Requirements with their hashes, by name, for what setup.cfg asks for with these extras.

    Raises SystemExit where Pythons need different ones: the files have no markers.
    """
    first, *others = pythons()
    found = compiled_for(first, *extras)
    for python in others:
        differing = dict(set(found.items()) ^ set(compiled_for(python, *extras).items()))
        if differing:
            raise SystemExit(f"error: Python {first} and {python} need different {', '.join(sorted(differing))}")
    return found


def compiled_for(python: str, *extras: str) -> dict[str, str]:
    """Ask the index for one Python. Fails where a package has no wheel for it."""
    words = ["uv", "pip", "compile", "-", "--constraints", "constraints.txt", "--generate-hashes"]
    words += ["--python-version", python, "--only-binary", ":all:", "--no-header", "--no-annotate", "--quiet"]
    asked = SETUP["options"]["install_requires"]
    asked += "".join(SETUP["options.extras_require"][extra] for extra in extras)
    said = subprocess.run(words, input=f"setuptools{asked}\n", text=True, check=True, stdout=subprocess.PIPE).stdout
    requirements = re.split(r"^(?=\S)", said, flags=re.MULTILINE)
    return {re.split(r"[=\[]", text)[0]: text for text in requirements if text}


def pinned() -> dict[str, str]:
    """The versions in constraints.txt, by normalised name."""
    pins = [line.split("==") for line in Path("constraints.txt").read_text().splitlines() if "==" in line]
    return {name.lower().replace("_", "-").replace(".", "-"): version for name, version in pins}


def main(wheel: str) -> None:
    pins = pinned()
    core, test, audit = compiled("cluster"), compiled("cluster", "test"), compiled("cluster", "audit")
    cuda = {
        name: text for name, text in core.items() if name == "torch" or name.startswith("nvidia-") or name not in pins
    }
    files = {
        "core": {name: text for name, text in core.items() if name not in cuda},
        "test": {name: text for name, text in test.items() if name in pins and (name not in core or name == NVRTC)},
        "audit": {name: text for name, text in audit.items() if name in pins and name not in core},
        "torch-cuda": cuda,
    }
    for file, found in files.items():
        (HERE / f"{file}.txt").write_text(HEAD + "".join(found.values()))
    digest = hashlib.sha256(Path(wheel).read_bytes()).hexdigest()
    cpu = f"torch=={pins['torch']}+cpu \\\n    --hash=sha256:{digest}\n"
    (HERE / "torch-cpu.txt").write_text(HEAD + f"# {Path(wheel).name}\n{cpu}")


if __name__ == "__main__":
    main(*sys.argv[1:])
