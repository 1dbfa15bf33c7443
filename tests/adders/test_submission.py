"""`verify --run-code`: strangers' submissions are run locked up, and each way of being hostile is tried."""

import json
import platform
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from adders.stranger import child
from adders.stranger import submission as judged
from model import adderboard
from tests.commands import call, done, fails_with_one, says

pytestmark = [
    pytest.mark.usefixtures("here", "few"),
    pytest.mark.skipif(platform.machine() not in child.ARCHITECTURES, reason="no filter for this machine"),
]
FILE = Path("theirs.py")
QUEUED = {"x86_64": 297, "aarch64": 240}
"""rt_tgsigqueueinfo, which the C library has for a process's own threads alone."""
RIGHT = "def build_model():\n    return object(), {}\ndef add(model, a, b):\n    return a + b\n"


@pytest.fixture
def few(monkeypatch):
    """Ask five pairs."""
    pairs = adderboard.official_pairs()[:5]
    monkeypatch.setattr(adderboard, "official_pairs", lambda: pairs)


def written(add, before="", build="return object(), {}"):
    FILE.write_text(f"{before}\ndef build_model():\n    {build}\ndef add(model, a, b):\n    {add}\n")
    return FILE


def verified(*more):
    return call("verify", FILE, "--run-code", *more)


def refused(*more, code=1, file=FILE):
    return fails_with_one(code, "verify", file, "--run-code", *more)


def tried(what):
    """What a submission got when it tried something while it was loaded."""
    FILE.write_text(
        "import ctypes, fcntl, os, socket, struct, subprocess, signal, threading\ndef system(name, *given):\n"
        "    if getattr(ctypes.CDLL(None, use_errno=True), name)(*given):\n"
        f"        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))\ndef trial():\n    {what}\n"
        "try:\n    trial()\nexcept BaseException as error:\n"
        "    raise ValueError(type(error).__name__ + ' ' + str(error))\n"
        f"{RIGHT}"
    )
    return verified()


def test_it_is_run_only_when_asked():
    written("return a + b", before="open('was-run', 'w')")
    line = fails_with_one(2, "verify", FILE)
    assert line.startswith("theirs.py: a program, not a checkpoint; nothing of it was run.") and "--run-code" in line
    assert not Path("was-run").exists()
    assert "is for a submission, a .py file" in refused(code=2, file="nothing.py")
    Path("folder").mkdir()
    assert "is for a submission" in refused(code=2, file="folder")
    assert "--extended is for checkpoints" in refused("--extended", code=2)


def test_answers_and_parameters_are_counted():
    written("return a + b")
    assert done("verify", FILE, "--run-code").splitlines() == [
        "theirs.py, it counts no parameters: 5/5 VERIFIED",
        "  run without network, with files to read only, in 8 GiB a process; its code was not judged",
    ]
    written("return a + b if b else 7", before="class P:\n    def numel(self): return 3\nclass M:\n"
            "    def parameters(self):\n        p = P()\n        return [p, p, P()]", build="return M()")  # fmt: skip
    said = verified("--json")
    values = json.loads(said.stdout)
    assert said.exit_code == 1 and values["params"] == 6 and values["correct"] == 3 and not values["not_kept_from"]
    assert values["failures"] == [[0, 0, 7], [9_999_999_999, 0, 7]]


def test_what_is_no_number_is_wrong():
    """Each pair gets an answer of another kind; then one that fails, and numbers that no sum is."""
    kinds = "str, float, lambda n: None, lambda n: True, lambda n: 10 ** 5000"
    for before, add, expected in (
        (f"kinds = iter([{kinds}])", "return next(kinds)(a + b)", [None] * 5),
        ("", "if not a + b: raise RuntimeError('no')\n    return -1", [None, -1, -1, -1, -1]),
    ):
        written(add, before)
        said = json.loads(verified("--json").stdout)
        assert said["correct"] == 0 and [decoded for *_, decoded in said["failures"]] == expected


@pytest.mark.parametrize(
    "what",
    [
        "socket.socket()",
        "socket.create_connection(('127.0.0.1', PORT))",
        "socket.socketpair()",
        "open('new', 'w')",
        "open('mine', 'r+')",
        "os.open('mine', os.O_WRONLY)",
        "os.open('mine', os.O_RDONLY | os.O_TRUNC)",
        "os.truncate('mine', 0)",
        "os.unlink('mine')",
        "os.rename('mine', 'other')",
        "os.mkdir('new')",
        "os.symlink('mine', 'new')",
        "os.link('mine', 'new')",
        "os.chmod('mine', 0)",
        "os.utime('mine')",
        "os.mkfifo('new')",
        "os.setxattr('mine', 'user.x', b'1')",
        "fcntl.ioctl(open('mine'), 0x40086602, struct.pack('l', 0x40))",
        "fcntl.ioctl(0, 0x5402, bytes(36))",
        "subprocess.run(['touch', 'new'])",
        "os.execv('/bin/true', ['true'])",
        "os.kill(os.getppid(), signal.SIGTERM)",
        "system('sigqueue', os.getppid(), 0, None)",
        "system('syscall', QUEUED, os.getppid(), os.getppid(), 0, None)",
        "fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
        "fcntl.fcntl(0, fcntl.F_SETSIG, signal.SIGIO)",
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
        "os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0))",
        "os.sched_setscheduler(os.getppid(), os.SCHED_OTHER, os.sched_param(0))",
        "os.sched_setparam(os.getppid(), os.sched_param(0))",
        "system('shmctl', 0, 0, None)",
        "os.setsid()",
        "os.setpgid(0, 0)",
    ],
)
def test_what_it_may_not_do(what):
    Path("mine").write_text("whole")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        result = tried(what.replace("PORT", port).replace("QUEUED", str(QUEUED[platform.machine()])))
    assert result.exit_code == 1
    assert result.stderr == "error: theirs.py: build_model() failed: ValueError: " + (
        f"PermissionError [Errno 1] Operation not permitted{result.stderr.partition('permitted')[2]}"
    )
    assert Path("mine").read_text() == "whole" and sorted(f.name for f in Path().iterdir()) == ["mine", "theirs.py"]


def test_what_it_may_do():
    """Threads, reading, forks, locks, cores of its own: torch needs them. Descriptors of its own, as Python does."""
    Path("mine").write_text("whole")
    tried(
        "t = threading.Thread(target=print); t.start(); t.join(); fcntl.lockf(open('mine'), fcntl.LOCK_SH)\n"
        "    os.set_inheritable(os.dup(0), fcntl.fcntl(0, fcntl.F_GETFL) == 0); os.set_blocking(os.dup(0), True)\n"
        "    os.sched_setaffinity(0, os.sched_getaffinity(0)); os.fork() or os._exit(0)"
    )
    assert verified().stdout.startswith("theirs.py, it counts no parameters: 5/5 VERIFIED")


def test_it_has_nothing_of_this_environment(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")
    written("return len([n for n in os.environ if 'MLFLOW' in n])", before="import os")
    assert json.loads(verified("--json").stdout)["correct"] == 1  # 0 + 0


@pytest.mark.parametrize("forged", ["9" * 5_000, "--5", "-", "0x1", "٣" * 30, "1" * 21])
def test_what_it_writes_to_the_pipe_itself_is_no_number(forged):
    """Its descriptor is on the command line: a submission can write to it before the program that runs it does."""
    write = f"import os, sys\nos.write(int(sys.argv[2]), ({forged!r} + '\\n').encode())"
    written("return a + b", before=write)
    said = verified("--json")
    values = json.loads(said.stdout)
    assert said.exit_code == 1 and values["params"] == -1 and values["correct"] < 5


def test_what_ends_or_goes_on_is_bounded(monkeypatch):
    flood = "import os\nfor fd in range(3, 4096):\n    try:\n        while True: os.write(fd, b'x' * 9999)\n"
    for add, before, said in (
        ("os._exit(0)", "import os", "theirs.py: ended after 0 of 5 additions, or wrote what is no answer"),
        ("return a + b", "import os; os._exit(0)", "theirs.py: ended before it had a model*"),
        ("return a + b", "import sys; sys.exit('bye')", "*build_model() failed: SystemExit: bye"),
        ("return a + b", "x = bytearray(1 << 36)", "theirs.py: build_model() failed: MemoryError*"),
        ("return a + b", f"{flood}    except OSError: pass", "*writes more than its answers*"),
        ("return a +", "", "*build_model() failed: SyntaxError*"),
    ):
        written(add, before)
        assert says(refused(), said)
    written(
        "return a + b",
        before="import sys\nfor n in range(200): print('x' * 10**5), print('y' * 10**5, file=sys.stderr)",
    )
    assert verified().stdout.splitlines()[0].endswith("5/5 VERIFIED") and len(verified().output) < 300

    run = judged.run_submission
    monkeypatch.setattr(judged, "run_submission", lambda path, minutes: run(path, 0.02))
    for add, before in (
        ("while True: pass", ""),
        ("return a + b", "import os\nif os.fork(): os._exit(0)\nwhile True: pass"),
    ):
        written(add, before)
        begin = time.monotonic()
        assert refused() == "theirs.py: 0 additions in 1 s; --minutes allows more"
        assert time.monotonic() - begin < 20
    processes = subprocess.check_output(["ps", "-eo", "args"], text=True)
    assert "theirs.py" not in processes


def test_what_a_machine_cannot_lock_is_said(monkeypatch):
    """Where there is no filter for a machine, as on macOS, the child says so, and the command."""
    say = "import sys; sys.path.insert(0, sys.argv[1]); import child; child.ARCHITECTURES = {}; "
    run = [sys.executable, "-I", "-c", say + "print(child.lock(1 << 33, 9))", str(Path(child.__file__).parent)]
    assert subprocess.check_output(run, text=True) == "['network', 'files', 'other processes']\n"
    lines = judged._lines_of
    monkeypatch.setattr(judged, "_lines_of", lambda *given: ["network,files", *lines(*given)[1:]])
    said = done("verify", written("return a + b"), "--run-code").splitlines()
    assert said[-1] == "  this machine could not keep it from: network, files"
