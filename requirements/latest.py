"""`make test-latest`: which newest library breaks? One after another, in the environment whose Python runs this.

Each of LIBRARIES is upgraded to the newest that can be installed, whatever constraints.txt pins. One with which the
short tier passes stays; one with which it fails goes, and all that came with it. Exit code 1: one broke it.
What is found to break it is excluded in setup.cfg (torch>=2.13,!=2.15.*): pip avoids it then, and a run refuses it.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import MetadataPathFinder, distributions
from typing import Protocol

from packaging.version import Version

LIBRARIES = ("numpy", "pandas", "optuna", "mlflow", "ray", "torch")


class Environment(Protocol):
    """What is installed, and how it is changed and tried."""

    def versions(self) -> dict[str, str]: ...

    def newer(self, name: str, version: str) -> list[str]: ...

    def install(self, name: str, version: str) -> str: ...

    def restore(self, versions: dict[str, str]) -> None: ...

    def failures(self) -> str: ...


class This:
    """The virtual environment of this process."""

    def versions(self) -> dict[str, str]:
        """Return the versions of what is installed now, by name."""
        MetadataPathFinder().invalidate_caches()  # of the class alone only from Python 3.12 on
        found = {d.name: d.version for d in distributions(path=sys.path[1:])}
        return {name: version for name, version in found.items() if not name.startswith("adder-search")}

    def newer(self, name: str, version: str) -> list[str]:
        """Return the versions after this one that the package index has for this Python, the newest first."""
        done = self._pip("index", "versions", name, stdout=subprocess.PIPE)
        done.check_returncode()
        return newer_of(done.stdout, version)

    def install(self, name: str, version: str) -> str:
        """Install a version of a library. Return what pip says against it; nothing if it is installed."""
        done = self._pip("install", "--quiet", f"{name}=={version}")
        return refusal_of(done.stderr) if done.returncode else ""

    def restore(self, versions: dict[str, str]) -> None:
        """Install these versions in the place of others. Raises CalledProcessError where one cannot be had."""
        there = self.versions()
        other = [f"{name}=={version}" for name, version in versions.items() if there.get(name) != version]
        if other:
            self._pip("install", "--quiet", "--no-deps", *other).check_returncode()
        if added := there.keys() - versions.keys():
            self._pip("uninstall", "--quiet", "--yes", *added).check_returncode()

    def failures(self) -> str:
        """Run the short tier. Return the first test that fails, or what was printed last; nothing if all pass."""
        words = ["make", "test-short", f"VENV={sys.prefix}", f"PYTHON={sys.executable}"]
        done = subprocess.run(words, text=True, capture_output=True)
        print(done.stdout, done.stderr, flush=True)
        if done.returncode == 0:
            return ""
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0] if failed else _last_line(done.stdout)

    def _pip(self, *words: str, stdout: int | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pip", *words]
        return subprocess.run(command, text=True, stdout=stdout, stderr=subprocess.PIPE)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return lines[-1] if lines else "nothing was said"


def refusal_of(said: str) -> str:
    """Return the line in which pip says why it cannot install something: what conflicts, if it says so."""
    conflicts = said.partition("The conflict is caused by:")[2].strip().partition("\n\n")[0]
    return "; ".join(line.strip() for line in conflicts.splitlines()) or _last_line(said)


def newer_of(said: str, version: str) -> list[str]:
    """Return the versions after this one that `pip index versions` said, the newest first. Builds (+cpu) are equal."""
    (line,) = (line for line in said.splitlines() if line.startswith("Available versions:"))
    known = {Version(word).public for word in line.partition(":")[2].split(",")}
    this = Version(Version(version).public)
    return sorted((v for v in known if Version(v) > this), key=Version, reverse=True)


def try_each(environment: Environment, names: tuple[str, ...] = LIBRARIES) -> tuple[list[str], bool]:
    """Upgrade each library in turn and keep those that pass. Return a line about each, and whether any broke it."""
    if why := environment.failures():
        return [f"the pinned versions fail by themselves: {why}"], True
    lines, any_broke = [], False
    for name in names:
        before = environment.versions()
        pinned = before[name]
        for version in environment.newer(name, pinned):
            what = f"{name} {version}"
            # Of a new release the index may lack a part, or this machine may not want it: then the one before it.
            if refused := environment.install(name, version):
                lines.append(f"{what}: cannot be installed: {refused}")
                continue
            if why := environment.failures():
                any_broke = True
                environment.restore(before)
                lines.append(f"{what} breaks what {pinned} does not: {why}")
            else:
                lines.append(f"{what} passes, in place of {pinned}")
            break
        else:
            lines.append(f"{name} {pinned}: the newest that can be installed is pinned")
    return lines, any_broke


if __name__ == "__main__":
    said, is_broken = try_each(This())
    print("\n".join(said))
    sys.exit(is_broken)
