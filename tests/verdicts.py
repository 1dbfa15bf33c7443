"""Verdicts as a file or a ledger has them, true or forged."""

import json

from model.verdict import COUNTEREXAMPLE, digest
from tests import CERTIFICATES


def verdict_on(checkpoint, word):
    """A verdict with all that one has, as if it had been found of this checkpoint."""
    values = json.loads((CERTIFICATES / "7p/proof.json").read_text())
    for name in ("check", "check_seconds", "parts", "program_sha256"):
        values.pop(name, None)
    wrong = [{"a": 1, "b": 2, "answer": 4}] if word == COUNTEREXAMPLE else []
    spec = json.loads(json.dumps(checkpoint.spec.as_dict()))
    about = {"theta_sha256": digest(checkpoint.theta_P), "params": checkpoint.spec.params, "spec": spec}
    return {**values, "verdict": word, "wrong": wrong, **about}
