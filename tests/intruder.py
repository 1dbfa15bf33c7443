"""What can a task reach that somebody with Ray's token places on every node? `intruder.py NAME=HOST:PORT ...`

tests/slow/compose.sh runs it inside a worker while a driver is at work. For each node a line of JSON: its address,
the secrets' files, which ports open, PostgreSQL's sockets, how many drivers are seen, and which processes
have a password in their environment that can be read.
"""

import json
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def opens(where):
    host, _, port = where.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def text(path):
    try:
        return path.read_bytes().decode("latin-1")
    except OSError:
        return ""


def look(doors):
    """Zero CPUs: this runs also where nothing is trained."""
    processes = [p for p in Path("/proc").glob("[0-9]*") if p.name != str(os.getpid())]
    with ThreadPoolExecutor(len(doors)) as threads:
        at_once = list(threads.map(opens, doors.values()))
    return {
        "secrets": sorted(str(p) for f in ("/run/secrets", "/run/adder") for p in Path(f).glob("*")),
        "open": sorted(name for name, is_open in zip(doors, at_once, strict=True) if is_open),
        "sockets": [str(p) for p in Path("/run/postgresql").glob(".s.*")],
        "drivers": sum("adder-search\0run" in text(p / "cmdline") for p in processes),
        "passwords": [str(p) for p in processes if "PASSWORD=" in text(p / "environ")],
    }


if __name__ == "__main__":
    doors = dict(word.split("=") for word in sys.argv[1:])
    ray.init(address="ray-books:6379", log_to_driver=False, logging_level="ERROR")
    nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    there = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    tasks = [ray.remote(look).options(num_cpus=0, scheduling_strategy=t).remote(doors) for t in there]
    for address, found in zip(nodes.values(), ray.get(tasks, timeout=120), strict=True):
        print(json.dumps({"node": address, **found}))
