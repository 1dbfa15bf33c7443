"""The commands on adders, for `adder-search --help`."""

from search.cli.listed import Listed

SECTION = "Checkpoints"


def _listed(name: str, says: str) -> Listed:
    module = f"adders.commands.{'import_' if name == 'import' else name}"
    return Listed(name, says, module, SECTION)


prove = _listed("prove", "Prove or refute that a checkpoint adds all 10^20 pairs.")
explain = _listed("explain", "Write a page in which a checkpoint adds, digit by digit.")
export = _listed("export", "Write a checkpoint as an AdderBoard submission.")
register = _listed("register", "Put checkpoints into MLflow's model registry.")
publish = _listed("publish", "Write checkpoints as folders for a model hub.")
import_ = _listed("import", "Turn another program's checkpoint into one of ours.")
fold = _listed("fold", "Rewrite a checkpoint exactly with fewer numbers.")
finish = _listed("finish", "Take a checkpoint that is nearly right to all 10,010.")
