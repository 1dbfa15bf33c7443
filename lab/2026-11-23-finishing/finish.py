"""finish.csv from what `adder-search finish --json` said: python finish.py FOLDER > finish.csv.

FOLDER has a file METHOD-SEED.json a call, METHOD being `all` where none was named.
"""

import csv
import json
import sys
from pathlib import Path

names = ["seed", "method", "wrong_before", "wrong", "adderboard", "by", "turns", "problems", "core_seconds"]
out = csv.writer(sys.stdout, lineterminator="\n")
out.writerow(names)
for file in sorted(Path(sys.argv[1]).glob("*-[0-9]*.json")):
    method, seed = file.stem.rsplit("-", 1)
    if not (said := json.loads(file.read_text() or "{}")):
        continue
    facts = (said["wrong_before"], said["wrong"], said["verification"]["correct"], said["by"] or "")
    turns = " ".join(f"{t['method']}:{t['wrong']}" for t in said["turns"])
    out.writerow([seed, method, *facts, turns, said["problems"], round(said["cpu_s"], 1)])
