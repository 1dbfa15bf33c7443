"""The command `adder-search`, and `python -m adder_search`.

No other file has this module's name, so that the package `search` beside it is what runs, even where a search.py lies
on PYTHONPATH. Python 3.6 can read it, to be refused in one line.
"""

import runpy
import signal
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

INSTALLED = Path(__file__).resolve().parent


def main() -> None:
    """Run the command line. Raise SystemExit on a machine that cannot (model/supported.py), and at its end."""
    runpy.run_path(str(INSTALLED / "model" / "supported.py"))
    found = PathFinder.find_spec("search", [str(INSTALLED)])
    sys.modules["search"] = search = module_from_spec(found)
    found.loader.exec_module(search)
    from search.cli import main as command
    from search.run.terminal import ENDING

    try:
        command()
    finally:
        # What ran has ended, and its exit code stands. Python still ends the threads of Ray and MLflow: until it has,
        # a signal would be a traceback, or kill this process.
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
