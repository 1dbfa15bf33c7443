"""PTX that NVRTC made of the CUDA engine, run without a GPU: turned into C++ an instruction a line, a warp as fibres.

All spaces of memory are the process's: an address in any of them is a pointer. An unknown instruction is an error.
Denormal numbers are 0 by the CPU's mode, for all that computes with float32: so each such instruction must have `ftz`.
"""

import ctypes
import re

import numpy as np

from benchmarks.emulator import Emulator
from trainer.engine.build import denormals, library
from trainer.engine.cuda import nvrtc
from trainer.engine.cuda.driver import CudaError
from trainer.engine.cuda.machine import SOURCES, TEAMS, address_of, checked_sizes, source_of

TYPES = {f"{kind}{bits}": f"{prefix}{bits}_t" for bits in (8, 16, 32, 64)
         for kind, prefix in (("s", "int"), ("u", "uint"), ("b", "uint"))}  # fmt: skip
TYPES |= {"f32": "float", "f64": "double", "pred": "bool"}
ENTRIES = ("engine_sizes", "engine_train", "engine_evaluate")
OPERATIONS = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "div": "{0} / {1}", "neg": "-{0}", "rcp": "1 / {0}", "mul": "{0} * {1}",
    "abs": "{0} < 0 ? -{0} : {0}", "sqrt": "std::sqrt({0})", "fma": "std::fma({0}, {1}, {2})",
    "mad": "{0} * {1} + {2}", "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "mov": "{0}", "cvta": "{0}",
    "bfi": "inserted({0}, {1}, {2}, {3})", "not": "~{0}", "not of pred": "!{0}",
    "min": "{0} < {1} ? {0} : {1}", "max": "{0} > {1} ? {0} : {1}",
    "min of floats": "std::fmin({0}, {1})", "max of floats": "std::fmax({0}, {1})",
}  # fmt: skip
ARITHMETIC = {"add", "sub", "mul", "div", "rcp", "fma", "sqrt", "neg", "abs", "min", "max", "setp"}
COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
ROUNDED = {"rmi": "std::floor", "rpi": "std::ceil", "rzi": "std::trunc"}
INSTRUCTION = re.compile(r"(?:@(!?)%(\w+)\s+)?([a-z][\w.]*)\s*(.*)", re.S)


def value(text, kind):
    """Return an operand as C++ of a type."""
    text = text.strip()
    if text.startswith(("%tid", "%ctaid")):
        return "current" if "tid" in text and "cta" not in text else "block"
    if text.startswith("%"):
        return f"{text[1:]}.get<{kind}>()"
    if text.startswith(("0f", "0d")):
        return f"number<{kind}>(0x{text[2:]}ull)"
    if re.match(r"-?\d", text):
        return f"({kind}){text}ll"
    return f"({kind})(uintptr_t){'SHARED' if text == 'shared_memory' else text}"


def place(text, kind, n=0):
    """Return what an address points to, the n-th after it."""
    base, offset = re.fullmatch(r"\[(%?[\w$]+)(?:\+(-?\d+))?\]", text.strip()).groups()
    return f"(({kind}*)(uintptr_t)({value(base, 'uint64_t')} + {offset or 0}ll))[{n}]"


def compared(how, a, b, kind):
    """Return a comparison; of floats, one with a u is true of no number (NaN)."""
    if how in ("num", "nan"):
        return f"{'!' if how == 'num' else ''}({a} != {a} || {b} != {b})"
    if kind in ("float", "double") and how.endswith("u"):
        return f"({a} != {a} || {b} != {b} || {a} {COMPARED[how[:-1]]} {b})"
    if kind in ("float", "double") and how == "ne":
        return f"({a} < {b} || {a} > {b})"
    return f"{a} {COMPARED[how]} {b}"


def statement(text):
    """Return an instruction as a statement of C++."""
    negated, guard, op, rest = INSTRUCTION.fullmatch(text).groups()
    name, *modes = op.split(".")
    operands = re.findall(r"\[[^\]]*\]|<[^>]*>|\([^)]*\)|[^,\s]+", rest)
    kind = TYPES.get(modes[-1]) if modes else None
    done = _done(name, modes, operands, kind, text)
    return f"if ({negated}{guard}.get<bool>()) {{ {done}; }}" if guard else f"{done};"


def _done(name, modes, operands, kind, text):
    if name == "bra":
        return f"goto {operands[0].lstrip('$')}"
    if name == "ret":
        return "return"
    if name in ("ld", "st"):
        registers, address = operands if name == "ld" else operands[::-1]
        names = registers.strip("<>").split(",")
        parts = (
            f"{r.strip()[1:]}.put<{kind}>({place(address, kind, n)})"
            if name == "ld"
            else f"{place(address, kind, n)} = {value(r, kind)}"
            for n, r in enumerate(names)
        )
        return "; ".join(parts)
    if name == "call":
        return f"{operands[0]}({operands[1].strip('()')})"
    if name == "bar":
        return f"met({value(operands[0], 'uint32_t')})"
    to, taken = operands[0].split("|")[0][1:], operands[1:]
    result, expression = _computed(name, modes, taken, kind)
    return f"{to}.put<{result}>({expression})"


def _computed(name, modes, taken, kind):
    """Return the type of a result, and the expression that it is."""
    assert not {"approx", "sat"} & set(modes), (name, modes)
    assert not takes_denormals(name, modes) or ("ftz" in modes) == (denormals() == "0"), (name, modes)
    values = [value(x, kind) for x in taken]
    if name == "shfl":
        assert modes[1] == "bfly", modes
        return "uint32_t", f"shuffled({', '.join(value(x, 'uint32_t') for x in taken)})"
    if name == "selp":
        return kind, f"{value(taken[2], 'bool')} ? {values[0]} : {values[1]}"
    if name in ("shl", "shr"):
        direction = "left" if name == "shl" else "right"
        return kind, f"shifted_{direction}<{kind}>({values[0]}, {value(taken[1], 'uint32_t')})"
    if name == "setp":
        return "bool", compared(modes[0], *values, kind)
    if name == "cvt":
        return TYPES[modes[-2]], _converted(modes, values[0])
    if "hi" in modes:
        assert kind in ("int32_t", "uint32_t"), modes
        return kind, f"((int64_t){values[0]} * (int64_t){values[1]}) >> 32"
    if "wide" in modes:
        wide = {"int32_t": "int64_t", "uint32_t": "uint64_t", "int16_t": "int32_t", "uint16_t": "uint32_t"}[
            kind
        ]
        more = f" + {value(taken[2], wide)}" if name == "mad" else ""
        return wide, f"({wide}){values[0]} * ({wide}){values[1]}{more}"
    key = f"{name} of floats" if kind in ("float", "double") and name in ("min", "max") else name
    return kind, OPERATIONS["not of pred" if (name, kind) == ("not", "bool") else key].format(*values)


def takes_denormals(name, modes):
    """True of an instruction that computes with float32."""
    if name == "cvt":
        return "f32" in modes and modes[-1] in ("f32", "f64")
    return name in ARITHMETIC and modes[-1] == "f32"


def _converted(modes, x):
    to, source = TYPES[modes[-2]], TYPES[modes[-1]]
    floats = ("float", "double")
    if source in floats and to in floats:
        return f"{ROUNDED.get(modes[0], f'({to})')}({x})"
    if source in floats:
        assert modes[0] == "rzi", modes
        return f"saturated<{to}>({x})"
    return f"({to}){x}"


def translated(ptx):
    """Return the C++ of all functions of a module, and `run` of its entries."""
    text = re.sub(r"//[^\n]*", "", ptx)
    parts = [
        f"alignas(16) static const uint8_t {name}[] = {{{numbers}}};"
        for name, numbers in re.findall(
            r"\.(?:global|const) \.align \d+ \.b8 (\w+)\[\d+\] = \{(.*?)\};", text, re.S
        )
    ]
    functions = re.findall(
        r"^\.(?:visible \.entry|func) (\w+)\((.*?)\)[^{]*?\n\{\n(.*?)\n\}\n", text, re.S | re.M
    )
    for name, parameters, body in functions:
        names = re.findall(r"\.param [^,]*?(\w+)(?:\[\d+\])?\s*(?:,|$)", parameters.strip())
        parts += [f"static void {name}({', '.join(f'uint8_t* {n}' for n in names)}) {{", *_lines(body), "}"]
    calls = []
    for n, entry in enumerate(ENTRIES):
        count = next(p.count(".param") for f, p, _ in functions if f == entry)
        calls.append(f"if (entry == {n}) {entry}({', '.join(f'a[{i}]' for i in range(count))});")
    return "\n".join([*parts, "static void run(int entry, uint8_t** a) {", *calls, "}\n"])


def _lines(body):
    body = re.sub(r"\{([^{}\n]*)\}", r"<\1>", body)  # several registers
    for text in re.findall(r"\$\w+:|[{}]|[^;{}:]+;", body):
        text = text.strip().rstrip(";").strip()
        if text in ("{", "}"):
            yield text
        elif text.endswith(":"):
            yield f"{text.lstrip('$')};"
        elif found := re.fullmatch(r"\.reg \.\w+\s+%(\w+)<(\d+)>", text):
            yield f"Register {', '.join(found[1] + str(n) for n in range(int(found[2])))};"
        elif found := re.fullmatch(r"\.local \.align (\d+) \.b8\s+(\w+)\[(\d+)\]", text):
            yield f"alignas({found[1]}) uint8_t {found[2]}[{found[3]}];"
        elif found := re.fullmatch(r"\.reg \.b64\s+%(\w+)", text):
            yield f"Register {found[1]};"
        elif found := re.fullmatch(r"\.param [^\[]*?(\w+)(?:\[(\d+)\])?", text):
            yield f"alignas(8) uint8_t {found[1]}[{found[2] or 8}];"
        elif not text.startswith("."):
            yield statement(text)


class PtxModule:
    """`Module` by NVRTC's PTX of a kernel for an architecture, in this process."""

    def __init__(self, kernel, macros, folder, architecture):
        self.ptx = nvrtc.compiled(*source_of(kernel, macros), architecture, "PTX").decode().rstrip("\0")
        path = folder / "translated.h"
        path.write_text(translated(self.ptx))
        self.library = library(
            SOURCES.parents[2] / "tests" / "warp.cpp", {"TRANSLATED": f'"{path}"', "WHICH": hash(self.ptx) % 2**32},
            (folder, SOURCES), ("-O1", "-fwrapv", "-fno-strict-aliasing"),
        )  # fmt: skip
        numbers = np.zeros(6, np.int32)
        self._launch(0, 1, 16, ctypes.c_void_p(address_of(numbers)))
        self.sizes = checked_sizes(numbers)

    def wave(self, program):
        return TEAMS

    def train(self, program, seeds, steps):
        self._launch(
            1, -(-seeds.count // TEAMS), TEAMS * program.team_words, program, seeds, ctypes.c_int(steps)
        )

    def evaluate(self, program, seeds, exam):
        self._launch(2, -(-seeds.count // TEAMS), TEAMS * program.team_words, program, seeds, exam)

    def _launch(self, entry, blocks, words, *arguments):
        pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        if not self.library.launch(entry, blocks, words, pointers):
            raise CudaError("threads of a warp did not meet equally often")


class PtxMachine(Emulator):
    """`Machine` that runs NVRTC's PTX."""

    def __init__(self, folder, architecture="sm_90"):
        super().__init__()
        self.about = {"device": "PTX"}
        self.folder, self.architecture = folder, architecture

    def module(self, kernel, macros):
        return PtxModule(kernel, macros, self.folder, self.architecture)
