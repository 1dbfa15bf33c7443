"""What counts seeds and reads studies starts without torch."""

import subprocess
import sys

WITHOUT = """
import sys, types
model = types.ModuleType("model")  # its own imports are tested with it
model.__path__ = sys.argv[1:]
sys.modules["model"] = model
from trainer import FALSE_KILLS_UPPER, FUTILITY_RULE, MEASURES, FutilityRule, Outcome, Pair, Recipe, Seed
from trainer.bank.futility import full_length_from, is_control
from trainer.files.installed import code_version, missing_for_compilation
Recipe(optimiser="adamw").program()
print(sorted({"torch", "numpy", "safetensors", "filelock"} & sys.modules.keys()))
"""


def test_recipes_outcomes_and_the_rule_need_no_torch():
    import model

    command = [sys.executable, "-c", WITHOUT, *model.__path__]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_name_of_the_package_is_found():
    import trainer

    assert all(getattr(trainer, name) is not None for name in trainer.__all__)
    assert sorted(trainer.__all__) == sorted(n for names in trainer._PLACES.values() for n in names)
