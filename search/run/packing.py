"""How many seeds share a bank, and how many workers a machine or cluster has room for."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from model import Spec
from search.errors import UserError, reraise_as
from search.run.speeds import Amounts, fastest_share
from search.study.resources import CPU_SLOTS, Resources
from search.study.schema import Study
from search.study.trial import Configuration, Program
from trainer.engine.accelerators import MISSING, NEEDED, accelerator
from trainer.files.cores import usable_cores
from trainer.files.installed import SHIPPED, check_cache, missing_for_compilation

ACCELERATOR = "accelerator_type:"
"""Prefix of an accelerator's kind."""
UNTIL_SLOTS = 4
"""Slots of a CPU's bank in a study that ends once enough have grokked. With fewer slots the first seeds end
sooner, and less trains for nothing then. One slot alone is a fifth slower per step.
"""


@dataclass(frozen=True)
class Capacity:
    """Number of workers that a machine or cluster has room for at once, and the share of a GPU that each has."""

    concurrent: int = 1
    gpu: float = 0.0
    is_shared: bool = False
    """True if other studies may want the room, as on a cluster."""

    @property
    def on_gpu(self) -> bool:
        return self.gpu > 0


class BankShapes:
    """Numbers of slots of a study's banks: each program's seeds are spread over the banks that fit at once.

    They depend on the file and the machine alone: a seed has the same slots in every round and after every
    interruption.
    """

    def __init__(self, study: Study):
        self.study = study
        self.base = study.listed[0][0] if study.listed else study.base_spec if study.model else None
        """The first spec; None if a checkpoint that is not read yet has it."""
        self._seeds: Counter[Program] = Counter()
        """First seeds of each program, for each θ that the study starts from."""
        if study.kind.proposes:  # no program is known beforehand: all that is planned counts as of one
            self._seeds[(self.base,)] = study.planned * len(study.first_seeds)
            return
        starts = study.start.count if study.start else 1
        for pair in study.listed:
            program = Configuration(*pair).program
            self._seeds[program] += starts * len(study.kind.seeds_of(pair))

    def seeds_of_programs(self) -> list[tuple[Spec | None, int]]:
        """Return the spec and the first seeds of each program; of a search, its base and all seeds that it plans."""
        return [(program[0], seeds) for program, seeds in self._seeds.items()]

    def most_slots(self, fits: Capacity) -> int:
        return max((self._most(spec, fits) for spec, _ in self.seeds_of_programs()), default=1)

    def _most(self, spec: Spec | None, fits: Capacity) -> int:
        at_once = accelerator().price(spec).slots(fits.gpu) if fits.on_gpu else CPU_SLOTS
        return self.study.resources.slots or at_once

    def slots_of(self, program: Program, fits: Capacity) -> int:
        """Return the number of slots of a program's banks."""
        resources = self.study.resources
        most = self._most(program[0], fits)
        if self.study.until.grokked and not (resources.slots or fits.on_gpu):
            most = min(most, UNTIL_SLOTS)

        seeds = self._seeds.get(program, self._seeds.total())
        banks = max(1, fits.concurrent // len(self._seeds))
        share = -(-seeds // banks)  # rounded up
        return max(1, min(most, resources.seeds_per_trial or most, share))


def placement_of(study: Study, *nodes: Amounts, side_by_side: bool = False) -> tuple[Amounts, Capacity]:
    """Return `placement` of a study's workers, with `gpu: auto` as is expected to be fastest.

    side_by_side: workers with shares of a GPU train side by side there.
    """
    resources = study.resources
    if resources.gpu == "auto":
        share = fastest_share(BankShapes(study).seeds_of_programs(), resources.cpu, nodes, side_by_side)
        resources = resources.model_copy(update={"gpu": share})
    return placement(resources, *nodes)


def placement(resources: Resources, *nodes: Amounts) -> tuple[Amounts, Capacity]:
    """Return what Ray reserves for a worker, and how many fit on these nodes. Raises UserError if none does.

    A worker is on one node. nodes: the resources of each.

    >>> placement(Resources(cpu=2, gpu=0), {"CPU": 5.0})
    ({'CPU': 2, 'GPU': 0.0}, Capacity(concurrent=2, gpu=0.0, is_shared=False))
    """
    share = share_of(resources, *nodes)
    fits = sum(_fitting(share, node) for node in nodes)  # node by node: halves on two nodes are no place
    if not fits:
        raise UserError(_missing(share, nodes))
    return share, Capacity(fits, share["GPU"])


def share_of(resources: Resources, *nodes: Amounts) -> Amounts:
    """Return what Ray reserves for a worker, as far as that is known before there is room."""
    has_gpu = any(node.get("GPU", 0) for node in nodes)
    gpu = float(has_gpu if resources.gpu == "auto" else resources.gpu)
    share = {"CPU": resources.cpu, "GPU": gpu}
    if resources.accelerator_type:
        # Ray gives a node a little of a resource that is named after its accelerator.
        share[f"{ACCELERATOR}{resources.accelerator_type}"] = 0.001
    return share


def _fitting(share: Amounts, node: Amounts) -> int:
    """Return how many shares a node has room for."""
    times = min(node.get(name, 0) / amount for name, amount in share.items() if amount)
    return int(times + 1e-6)  # ten tenths are one


def _missing(share: Amounts, nodes: Sequence[Amounts]) -> str:
    """Return the line for a share that no node has room for."""
    if not any(node.get("CPU") for node in nodes):  # a head without CPUs is none that trains
        return "there is no node"
    for name, wanted in share.items():
        available = max(node.get(name, 0) for node in nodes)
        if name.startswith(ACCELERATOR) and not available:
            return f"resources.accelerator_type: no node has {name.removeprefix(ACCELERATOR)}"
        if wanted > available:
            where = " on one node" if len(nodes) > 1 else ""
            return f"resources.{name.lower()}: a bank asks for {wanted:g}, there are {available:g}{where}"
    return "resources: no node has all that a bank asks for"


def local_resources() -> Amounts:
    """Return what this process may use of its machine."""
    return {"CPU": usable_cores(), "GPU": accelerator().count()}


def cluster_address() -> str | None:
    """Return the address of the cluster to use, or None for a Ray of this run's own."""
    address = os.environ.get("RAY_ADDRESS")
    return address if address != "local" else None


def check_resources(resources: Resources) -> str | None:
    """Raise UserError at once if this machine cannot place a worker; a cluster is asked later.

    Return what is to be said first, if anything: there is no C++ compiler, or GPUs are silent or shared in turns.
    """
    share = None if resources.gpu == "auto" else resources.gpu
    if share and accelerator() is MISSING:
        raise UserError(f"resources.gpu needs {NEEDED}")
    if cluster_address():
        return None
    if resources.accelerator_type:
        nowhere = "chooses among the nodes of a cluster (RAY_ADDRESS), and there is none"
        raise UserError(f"resources.accelerator_type {nowhere}")
    placement(resources, local_resources())
    if not resources.compiled:
        return None

    with reraise_as("resources.compiled"):
        check_cache()
    missing = missing_for_compilation()
    if missing and not SHIPPED.exists():  # with a wheel's engine, workers say what they lack
        return f"without {missing} training is a hundred times slower (apt-get install g++)"

    return None if share == 0 else accelerator().remark(share) or None
