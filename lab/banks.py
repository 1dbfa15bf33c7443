"""The states of a bank's pairs in a file, for experiments that train banks by themselves and go on where they were."""

import pickle
from pathlib import Path

from trainer import Bank


def save(bank: Bank, path: Path) -> None:
    """Write the states of all pairs of a bank to a file, whole or not at all."""
    half = path.with_name(path.name + ".half")
    half.write_bytes(pickle.dumps(bank.save_all(range(len(bank.pairs)))))
    half.rename(path)


def go_on(bank: Bank, path: Path) -> bool:
    """Set a bank's pairs back to what `save` wrote. Return False if there is none, or it is of other pairs."""
    if not path.exists():
        return False
    states = dict(enumerate(pickle.loads(path.read_bytes())))
    return bank.restore_all(states) == list(range(len(bank.pairs)))
