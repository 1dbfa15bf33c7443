"""Print what the image installs before the source is there: `requirements.py cpu|cuda [EXTRA...]`.

The names are setup.cfg's; torch gets the build that was asked for, in constraints.txt's version.
"""

import configparser
import re
import sys
from pathlib import Path


def main(build: str, *extras: str) -> None:
    if build not in ("cpu", "cuda"):
        sys.exit(f"TORCH={build}: cpu or cuda")
    setup = configparser.ConfigParser()
    setup.read("setup.cfg")
    lists = [setup["options"]["install_requires"], *(setup["options.extras_require"][e] for e in extras)]
    names = [line for text in lists for line in text.split("\n") if line and not line.startswith("torch>")]
    pinned = re.search(r"^torch==(.+)$", Path("constraints.txt").read_text(), re.MULTILINE)
    assert pinned, "constraints.txt pins torch"
    # A CPU wheel that lies in the folder of wheels would be preferred to the CUDA build.
    torch = f"torch=={pinned[1]}+cpu" if build == "cpu" else f"torch=={pinned[1]},!={pinned[1]}+cpu"
    # setuptools makes the source's wheel later, without a look at an index.
    print(torch, "setuptools>=77", *names, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
