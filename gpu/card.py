"""A GPU that runs the CUDA engine: memory and launches by its driver, cubins by NVRTC, kept in the user's cache."""

from __future__ import annotations

import ctypes
import logging
import tempfile
from contextlib import suppress
from ctypes import byref, c_int, c_uint64, c_void_p
from functools import cached_property
from pathlib import Path

from gpu import nvrtc
from gpu.driver import CudaError, Driver, gpus
from gpu.machine import TEAMS, Memory, address_of, source_of
from gpu.schedule import TEAM
from gpu.structures import Exam, Program, Seeds, Sizes
from model.spec import Kernel
from trainer.engine.accelerators import LOG
from trainer.engine.build import Macros, digest_of, name_of
from trainer.engine.tape_graph import Array
from trainer.files import durable
from trainer.files.installed import cache_folder

LARGEST_SHARED = 8
"""Number of a function's attribute: most bytes of shared memory that a launch may ask for."""
log = logging.getLogger(LOG)


class Card:
    """`Machine` by the first visible GPU. Raise CudaError where there is none, or it fails."""

    def __init__(self) -> None:
        visible, why = gpus()
        if not visible:
            raise CudaError(why or "no GPU is here")
        self.gpu = visible[0]
        self.about = {
            "device": self.gpu.name,
            "driver": self.gpu.driver,
            "nvrtc": nvrtc.version(),
        }
        self.driver = Driver()
        self.driver.enter()

    def allocate(self, size: int) -> int:
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), ctypes.c_size_t(size))
        return address.value

    def write(self, address: int, array: Array) -> None:
        self._call(
            "cuMemcpyHtoD_v2",
            c_uint64(address),
            c_void_p(address_of(array)),
            ctypes.c_size_t(array.nbytes),
        )

    def read(self, address: int, array: Array) -> None:
        self._call(
            "cuMemcpyDtoH_v2",
            c_void_p(address_of(array)),
            c_uint64(address),
            ctypes.c_size_t(array.nbytes),
        )

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", c_uint64(address))

    def module(self, kernel: Kernel, macros: Macros) -> CardModule:
        return CardModule(self, kernel, macros)

    def _call(self, name: str, *arguments: object) -> None:
        self.driver.enter()  # calls come from several threads, and each has a current context of its own
        self.driver.call(name, *arguments)


class CardModule:
    """`Module` on a GPU: a block is a warp of two seeds, or of one where two need more shared memory than there is."""

    def __init__(
        self,
        card: Card,
        kernel: Kernel,
        macros: Macros,
        teams: int = TEAMS,
    ) -> None:
        self.card = card
        self.kernel = kernel
        self.macros = macros
        self.teams = teams
        self.module = c_void_p()
        try:
            # The number of teams is a macro, so that the compiler knows how many threads a block has.
            image = cubin(kernel, {**macros, "TEAMS": teams}, card.gpu.architecture)
            card._call("cuModuleLoadData", byref(self.module), image)
        except CudaError as error:
            # A compiler that does not suit the GPU fails in ways that do not say so.
            why = nvrtc.unsuited(nvrtc.library())
            raise CudaError(f"{error}; {why}" if why else str(error)) from None
        names = ("engine_sizes", "engine_train", "engine_evaluate")
        self.functions = {name: self._function(name) for name in names}
        self.sizes = Sizes.asked(self._write_sizes)

    @cached_property
    def of_one_seed(self) -> CardModule:
        """The same engine, with one seed in a block."""
        return CardModule(self.card, self.kernel, self.macros, teams=1)

    def that_fits(self, program: Program) -> CardModule:
        """Return the engine with as many seeds per block as fit. Raise CudaError if not even one does."""
        size = self.block_bytes(program)
        most = self.card.gpu.shared
        if size <= most:
            return self
        if self.teams > 1:
            return self.of_one_seed.that_fits(program)
        raise CudaError(f"a seed needs {size:,} bytes of shared memory, the GPU has {most:,}")

    def block_bytes(self, program: Program) -> int:
        """Return the bytes of shared memory of a block."""
        return self.teams * 4 * int(program.team_words)

    def train(self, program: Program, seeds: Seeds, steps: int) -> None:
        self._run("engine_train", program, seeds, c_int(steps))

    def evaluate(self, program: Program, seeds: Seeds, exam: Exam) -> None:
        self._run("engine_evaluate", program, seeds, exam)

    def _write_sizes(self, numbers: Array) -> None:
        with Memory(self.card) as memory:
            address = memory.put(numbers)
            assert address
            self._launch("engine_sizes", 1, 0, c_uint64(address))
            self.card.read(address, numbers)

    def _run(self, name: str, program: Program, seeds: Seeds, last: ctypes.Structure | c_int) -> None:
        fitting = self.that_fits(program)
        size = fitting.block_bytes(program)
        fitting.allow(size)
        fitting._launch(name, -(-seeds.count // fitting.teams), size, program, seeds, last)

    def allow(self, size: int) -> None:
        """Let blocks have `size` bytes of shared memory: without leave they get 48 KiB."""
        for name in ("engine_train", "engine_evaluate"):
            self.card._call("cuFuncSetAttribute", self.functions[name], LARGEST_SHARED, size)

    def _function(self, name: str) -> c_void_p:
        function = c_void_p()
        self.card._call("cuModuleGetFunction", byref(function), self.module, name.encode())
        return function

    def _launch(
        self,
        name: str,
        blocks: int,
        shared: int,
        *arguments: ctypes.Structure | c_int | c_uint64,
    ) -> None:
        """Run a kernel to its end."""
        # CUDA takes the address of each argument, and copies as many bytes as the kernel declares.
        pointers = (c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        self.card._call(
            "cuLaunchKernel",
            self.functions[name],
            blocks,
            1,
            1,
            self.teams * TEAM,
            1,
            1,
            shared,
            c_void_p(),
            pointers,
            c_void_p(),
        )
        # A launch returns at once. What fails while it runs is told by the next call, which must be this one.
        self.card._call("cuCtxSynchronize")


def cubin(kernel: Kernel, macros: Macros, architecture: str) -> bytes:
    """Return an engine compiled for an architecture: from the cache, or now. Raise CudaError."""
    text, headers = source_of(kernel, macros)
    about = [nvrtc.version(), architecture, *nvrtc.options(), text, *headers.values()]
    digest = digest_of(about, [])
    folder = cache_folder() / "cuda"
    for path in folder.glob(f"{digest}.*.cubin"):
        with suppress(OSError):  # another process has removed it, or nothing may be changed there
            content = path.read_bytes()
            if path.name == name_of(digest, content, "cubin"):
                return content
            # It was damaged, and would run on the GPU.
            path.unlink()
    content = nvrtc.compiled(text, headers, architecture)
    keep(folder / name_of(digest, content, "cubin"), content)
    return content


def keep(path: Path, content: bytes) -> None:
    """Write a file of the cache, whole or not at all. One that cannot be kept (a full disk) is a line in the log."""
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as aside:
            whole = Path(aside) / path.name
            whole.write_bytes(content)
            durable.move_in(whole, path)
    except OSError as error:
        log.warning("%s: what was made is not kept: %s", path.parent, error.strerror or error)
