"""Commands run without the research notebook, which no module of the product imports (tests/test_imports.py)."""

import json
import subprocess
import sys

from tests.commands import own_environment

SCRIPT = """
import contextlib, io, json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "lab":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from search.cli import main
said = {}
for words in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main(words.split())
        except SystemExit as end:
            said[words] = [end.code, out.getvalue()]
assert "lab" not in sys.modules
print(json.dumps(said))
"""


def test_the_commands_need_no_notebook(tmp_path):
    ours = ["--help", "studies", "models", "keys", "status --home nowhere"]
    added = ["claims", "thresholds", "forge", "table --shipped --interactions"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(ours + added)],
        cwd=tmp_path, env=own_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert all(said[words][0] == 0 for words in ours), said
    for words in added:
        code, text = said[words]
        assert code != 0 and "Traceback" not in text and words.split()[-1] in text
