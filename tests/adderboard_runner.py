"""AdderBoard's protocol on a submission file, written apart from `model` so that the two check each other.

    python -I adderboard_runner.py submission.py [COUNT]

prints one line of JSON: params (counted on the model), correct, total, metadata. COUNT: the first so many of
the 10,010 problems.
"""

import importlib.util
import json
import random
import sys

LARGEST = 9_999_999_999
EDGE_CASES = [
    (0, 0),
    (0, 1),
    (9_999_999_999, 0),
    (9_999_999_999, 1),
    (9_999_999_999, 9_999_999_999),
    (5_000_000_000, 5_000_000_000),
    (1_111_111_111, 8_888_888_889),
    (1_234_567_890, 9_876_543_210),
    (9_999_999_999, 9_999_999_999),
    (1, 9_999_999_999),
]


def load(path):
    """The submission at `path` as a module."""
    found = importlib.util.spec_from_file_location("submission", path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def problems():
    """10 edge cases, then 10,000 pairs drawn a then b."""
    rng = random.Random(2025)
    pairs = list(EDGE_CASES)
    for _ in range(10_000):
        a = rng.randint(0, LARGEST)
        b = rng.randint(0, LARGEST)
        pairs.append((a, b))
    return pairs


def main(path, count="10010"):
    submission = load(path)
    model, metadata = submission.build_model()
    pairs = problems()[: int(count)]
    correct = sum(submission.add(model, a, b) == a + b for a, b in pairs)
    params = sum(p.numel() for p in model.parameters())
    print(json.dumps({"params": params, "correct": correct, "total": len(pairs), "metadata": metadata}))


if __name__ == "__main__":
    main(*sys.argv[1:])
