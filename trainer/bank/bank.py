"""A bank: many seeds trained at once as one batched program.

A bank has S slots and a list of pairs (recipe, seed). Each slot trains one pair at its own step and with its
own numbers; a pair that ends frees its slot for the next in the list. A seed's θ does not depend on its
neighbours, its slot or interruptions. Trained by the engine (trainer/engine/native.py) it does not depend on the
machine either; torch's programs (trainer/engine/torch_backend.py) let it depend on the number of slots and on rounding.

Axes: S slot, N pair, L slot that is live, M measure, P parameters.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from model.presets import preset_name
from model.spec import Kernel, Spec, choices
from trainer.bank import saved
from trainer.bank.tracker import QUEUED, RUNNING, Result, SeedTracker
from trainer.data import hard_examples
from trainer.engine.accelerators import of_device
from trainer.engine.build import GivenUp
from trainer.engine.native import EngineBackend, choice_of, missing_to_train
from trainer.engine.torch_backend import TorchBackend
from trainer.files.installed import SHIPPED
from trainer.finishing import finish
from trainer.optimisers import optimiser_of
from trainer.optimisers.base import Optimiser
from trainer.outcomes import MEASURES
from trainer.recipe import SHAPING, SWITCHES, Pair, Recipe, Seed
from trainer.recipe.restarts import is_recycling_due, is_restart_due, restart_seed
from trainer.recipe.starts import hashed_seed, initial_theta
from trainer.recipe.teacher import teacher_of
from trainer.recipe.thresholds import reaches_any
from trainer.step import step
from trainer.step.schedule import Hyper
from trainer.step.step import State

IDLE = -1
WARM_UP = 3
"""Steps before the clock of `tried_rate` starts."""
TRIED_S = 0.5
"""Seconds of steps that it times."""
log = logging.getLogger(__name__)
DISAGREE = (
    f"a bank needs pairs whose recipes agree in {', '.join(SHAPING)} and in which are on of "
    f"{', '.join(SWITCHES)}, and all or none with ties"
)


class Bank:
    """Train pairs of one spec, `slots` at a time. Call `advance` until it returns False.

    spec: what is trained. pairs: seeds, each with its recipe. slots: how many train at once; by default all.
    device: `cpu`, or a kind of GPU, such as `cuda`. compiled: False for torch's eager programs, which need no compiler,
    and are a hundred times slower. Each seed trains as long as its recipe says, unless its pair has rules, such as
    `trainer.HOPELESS`: those of a study have.

    Raises ValueError if there is no pair or slot, the recipes' programs differ, or they have stages.

        >>> from model import preset
        >>> from trainer import Bank, Pair, Recipe, Seed
        >>> bank = Bank(preset("57p"), [Pair(Recipe(steps=20, eval_every=20), Seed.of(1))])
        >>> while bank.advance(): print(bank.result(0).steps)
        20
    """

    def __init__(
        self,
        spec: Spec,
        pairs: Sequence[Pair],
        *,
        slots: int | None = None,
        device: str = "cpu",
        compiled: bool = True,
    ):
        if len({p.program() for p in pairs}) != 1:
            raise ValueError(DISAGREE)
        recipe = pairs[0].recipe  # of what shapes the program, it speaks for all
        if recipe.stages:
            raise ValueError("a recipe with stages is trained by trainer.road.RoadBank, and by no Bank")
        for pair in pairs:
            pair.check(spec)
        self.spec, self.pairs = spec, list(pairs)
        self.program = pairs[0].program()
        self.eval_every = recipe.eval_every
        self.optimiser = optimiser_of(recipe)
        self.slots = len(pairs) if slots is None else slots
        if self.slots < 1:
            raise ValueError(f"a bank needs at least one slot, got {slots}")
        self.backend = backend_of(spec, recipe, device, compiled)
        self.device = self.backend.device

        self.tracker = SeedTracker(pairs, spec, tuple(spec.probes()))
        self.state = _empty(spec, self.optimiser, self.slots, self.device)
        if recipe.targeted:
            self.state |= hard_examples.empty_buffer(self.slots, self.device)
        self.pair_S = torch.full((self.slots,), IDLE)
        self.filled_S = torch.zeros(0, dtype=torch.int64)
        """As `pair_S` was when the slots were filled last."""
        self.hyper: Hyper = {}
        self.keys = [b""] * len(self.pairs)
        """The digest of each pair in its saved state, once it was asked for."""
        self.parked: dict[int, State] = {}
        """Pair -> its saved state [1, ...], while it waits for a slot."""
        self.spent: list[int] = []
        """Pairs that spent their budget and are to be finished, one at each call of `advance`."""
        self.seed_steps, self.train_s = 0, 0.0
        self._fill()
        self.backend.warm_up(self.state, self.hyper)

    @property
    def seed_steps_per_s(self) -> float:
        """Steps of live seeds for each second since the start, sampling and evaluation included."""
        return self.seed_steps / self.train_s if self.train_s else 0.0

    def advance(self) -> bool:
        """Train to the next evaluation, judge it, and finish a pair. Return False if no pair is left."""
        running = int((self.pair_S != IDLE).sum())
        start = time.perf_counter()
        is_finishing = bool(self.spent)
        if is_finishing:  # one at a call, since it may take seconds, and a worker reports between calls
            self._finish(self.spent.pop(0))
        if running:
            # Torch's bits depend on the number of rows, so its idle slots are trained too.
            count = running if self.backend.supports_partial_bank else self.slots
            measured_SM, shown_SP = self._train(count)
            self.seed_steps += running * self.eval_every
            self._refresh_hard_examples(count)
            self._judge(measured_SM.cpu(), shown_SP)
            self._fill()
        self.train_s += time.perf_counter() - start
        return bool(running or is_finishing)

    def add(self, pairs: Sequence[Pair]) -> range:
        """Append pairs to the queue; free slots take them at once. Return their numbers.

        Raise ValueError if their program is another one.
        """
        if {p.program() for p in pairs} - {self.program}:
            raise ValueError(DISAGREE)
        for pair in pairs:
            pair.check(self.spec)
        first = len(self.pairs)
        self.pairs += pairs
        self.keys += [b""] * len(pairs)
        self.tracker.add(SeedTracker(pairs, self.spec, self.tracker.probes))
        self._fill()
        return range(first, len(self.pairs))

    def end(self, numbers: Sequence[int]) -> None:
        """End pairs from outside: those that have not ended are censored."""
        open_ = self.tracker.censor(numbers)
        self._vacate(open_)
        self._fill()

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove pairs that have ended. Later pairs move up, and keep their order."""
        gone = set(numbers)
        kept = [n for n in range(len(self.pairs)) if n not in gone]

        # IDLE is -1, and so reads the last entry: it needs one of its own, which stays IDLE.
        moved_N = torch.full((len(self.pairs) + 1,), IDLE)
        moved_N[kept] = torch.arange(len(kept))
        self.pair_S = moved_N[self.pair_S]
        self.filled_S = moved_N[self.filled_S]

        place = {n: i for i, n in enumerate(kept)}
        self.spent = [place[n] for n in self.spent]
        self.parked = {place[n]: state for n, state in self.parked.items()}
        self.pairs = [self.pairs[n] for n in kept]
        self.keys = [self.keys[n] for n in kept]
        # A bank that kept ended pairs grew for ever: with 82,000 seeds, adding some took 5 s.
        self.tracker.keep(kept)

    def result(self, n: int) -> Result:
        """Return the n-th pair as far as it got: its best θ [P], its curve [E, M], its outcome."""
        return self.tracker.result(n)

    def newest(self) -> list[dict[str, Any]]:
        """Return one row per pair with its progress (trainer/bank/tracker.py)."""
        return self.tracker.newest()

    def save(self, n: int) -> bytes:
        """Return the state of a pair, which a bank of its spec goes on from bit for bit, in any company."""
        return self.save_all([n])[0]

    def save_all(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the states of pairs. Many at once cost little more than one."""
        records = self.tracker.records
        steps = records["steps"].tolist()
        facts = saved.record_rows(records)

        # Whole tables are turned into bytes, then cut: a copy from the GPU per tensor, and none per pair.
        in_slots = zip(self.pair_S.tolist(), saved.rows_of(self.state), strict=True)
        trained = {n: row for n, row in in_slots if n != IDLE}
        trained |= {n: saved.rows_of(state)[0] for n, state in self.parked.items()}

        packed = []
        for n in numbers:
            evaluations = steps[n] // self.eval_every
            curves = saved.curve_bytes(records, n, evaluations)
            packed.append(saved.pack(self._key(n), evaluations, facts[n], curves, trained.get(n)))
        return packed

    def restore(self, n: int, data: bytes) -> bool:
        """Set a pair back to a state. Return False, and change nothing, if it is damaged or another pair's."""
        return self.restore_all({n: data}) == [n]

    def restore_all(self, states: Mapping[int, bytes]) -> list[int]:
        """Set pairs back to states, before any of them trains. Return those whose states could be used."""
        usable = {}
        for n, data in states.items():
            state = saved.unpack(data, self._key(n), self.tracker.records, self.state)
            if state is not None and hard_examples.are_possible(state.state, self.spec.task):
                usable[n] = state
        self._vacate(list(usable))
        for n, (records, trained) in usable.items():
            self.tracker.restore(n, records)
            if trained:
                self.parked[n] = trained
        self.spent += self.tracker.needs_finishing(torch.tensor(list(usable), dtype=torch.int64), QUEUED)
        self._fill()
        return list(usable)

    def _key(self, n: int) -> bytes:
        """Return a digest of what a pair's state is of. Torch's bits depend on the number of slots as well."""
        if not self.keys[n]:  # words for a thousand pairs take long
            slots = None if self.backend.supports_partial_bank else self.slots
            # What differs from the defaults, and not every field: a release that adds one must not begin anew the
            # seeds that an older one has half trained.
            words = repr([self.spec.family, choices(self.spec), choices(self.pairs[n]), slots])
            self.keys[n] = saved.key_of(words, self.tracker.records, self.state)
        return self.keys[n]

    def _vacate(self, numbers: Sequence[int]) -> None:
        """Take pairs out of their slots."""
        self.spent = [n for n in self.spent if n not in numbers]
        for n in numbers:
            self.parked.pop(n, None)
        leaving = torch.tensor(list(numbers), dtype=torch.int64)
        self.pair_S[torch.isin(self.pair_S, leaving)] = IDLE

    def _train(self, count: int) -> tuple[Tensor, Tensor]:
        """Train the first slots to the next evaluation. Return their measures [count, M] and their θ [count, P]."""
        state, hyper = self._first(count)
        state, loss_S = self.backend.train(state, hyper, self.eval_every)
        for name, t in state.items():
            self.state[name][:count] = t

        measured, shown_SP = self._evaluate("theta", state, hyper)
        # An optimiser that averages θ has two: each seed shows the one that is better now.
        if self.optimiser.eval_theta:
            average, average_SP = self._evaluate(self.optimiser.eval_theta, state, hyper)
            more_S = average["exact"] > measured["exact"]
            same_S = average["exact"] == measured["exact"]
            better_S = more_S | (same_S & (average["loss"] < measured["loss"]))
            measured = {name: torch.where(better_S, t, measured[name]) for name, t in average.items()}
            shown_SP = torch.where(better_S[:, None], average_SP, shown_SP)

        measured["train_loss"] = loss_S / self.eval_every
        return torch.stack([measured[name] for name in MEASURES], dim=1), shown_SP

    def _first(self, count: int) -> tuple[State, Hyper]:
        """Return the state and the numbers of the first slots, where the live ones are."""
        state = {name: tensor[:count] for name, tensor in self.state.items()}
        hyper = {name: tensor[:count] for name, tensor in self.hyper.items()}
        return state, hyper

    def _evaluate(self, name: str, state: State, hyper: Hyper) -> tuple[dict[str, Tensor], Tensor]:
        """Measure a θ of the slots' states. Return the measures [count] and θ with its ties applied."""
        read_SP = step.apply_ties(state[name], state["step"], hyper)
        return self.backend.evaluate(read_SP), read_SP

    def _refresh_hard_examples(self, count: int) -> None:
        """Refresh the buffers of errors of the first `count` slots, if the recipes draw problems from them."""
        if hard_examples.COUNT not in self.state:
            return
        state, hyper = self._first(count)
        for name, t in step.find_hard_examples(self.spec, state, hyper, self.backend.is_wrong).items():
            self.state[name][:count] = t

    def _judge(self, measured_SM: Tensor, shown_SP: Tensor) -> None:
        """Record an evaluation of every running seed and free the slots of ended ones.

        Live slots come first, and are the first rows.
        """
        # θ and steps are copied from the device once, then judged on the CPU: rules read small numbers of each seed.
        live_L = (self.pair_S != IDLE).nonzero().flatten()
        pair_L, measures_LM = self.pair_S[live_L], measured_SM[live_L]
        slots_L = live_L.to(self.device)
        theta_LP = shown_SP[slots_L].cpu()
        step_L = (self.state["before"] + self.state["step"])[slots_L].cpu()
        loss_L = measures_LM[:, 2]
        finite_L = torch.isfinite(theta_LP).all(1) & torch.isfinite(loss_L)
        probes_LR = self.spec.read(theta_LP)
        left_L = self.tracker.record_evaluation(pair_L, step_L, measures_LM, theta_LP, finite_L, probes_LR)
        self.spent += self.tracker.needs_finishing(pair_L)

        before = (self.state[name][slots_L].cpu() for name in ("wd_scale", "mix_scale"))
        after = self.tracker.scales(pair_L, measures_LM, *before)
        for name, scale_L in zip(("wd_scale", "mix_scale"), after, strict=True):
            self.state[name][slots_L] = scale_L.to(self.device)

        # A seed that has grokked keeps its θ until it has held.
        open_L = ~left_L & (self.tracker.records["grok_step"][pair_L] < 0)
        self._restart_or_recycle(live_L[open_L])
        self.pair_S[live_L[left_L]] = IDLE

    def _finish(self, n: int) -> None:
        """Finish a pair that spent its budget, from its best θ, by what is installed for it."""
        pair, best_P = self.pairs[n], self.tracker.records["best_theta"][n]
        # Problems of its own, named by the seed: finished again, it must come to the same θ.
        finished_P = finish(self.spec, pair.ties, best_P, hashed_seed(f"finish {pair.seed}"))
        measured = self.backend.evaluate(finished_P[None].to(self.device))
        measures = [float(measured[name]) if name in measured else torch.nan for name in MEASURES]
        self.tracker.finish(n, torch.tensor(measures), finished_P)

    def _restart_or_recycle(self, slots_L: Tensor) -> None:
        """Restart the pairs of some slots, or recycle their units, where their recipes say so."""
        pair_L, limits = self.pair_S[slots_L], self.tracker.hyper
        age_L, before_L = (self.state[name].cpu()[slots_L] for name in ("step", "before"))
        restarts_L = is_restart_due(limits, pair_L, age_L, before_L)
        recycles_L = is_recycling_due(limits, pair_L, age_L)
        # Probes are looked up only for seeds whose turn it is, which are few.
        for i in (restarts_L | recycles_L).nonzero().flatten().tolist():
            slot, n = int(slots_L[i]), int(pair_L[i])
            recipe, values = self.pairs[n].recipe, self.tracker.values(n)
            if restarts_L[i] and not reaches_any(recipe.again_unless, values):
                self._begin(slot, n, int(before_L[i] + age_L[i]))
            elif recycles_L[i] and not reaches_any(recipe.recycle_unless, values):
                self._recycle(slot)

    def _recycle(self, slot: int) -> None:
        """Recycle units of a slot; the optimiser's state of changed entries begins anew."""
        recycled, theta_P = self.spec.recycled(), self.state["theta"][slot]
        assert recycled is not None
        fresh_P = recycled(self.spec, theta_P.cpu()[None])[0].to(self.device)
        new_P = fresh_P != theta_P
        for name, t in _initial_state(self.optimiser, fresh_P[None]).items():
            if t.shape[1:] == fresh_P.shape:  # what an optimiser has of each entry, and not of a whole seed
                self.state[name][slot] = torch.where(new_P, t[0], self.state[name][slot])

    def _fill(self) -> None:
        """Give every free slot the next queued pair; with none left, move the live slots to the front."""
        free = (self.pair_S == IDLE).nonzero().flatten().tolist()
        for slot, n in zip(free, self.tracker.queued(), strict=False):
            self._start(slot, n)

        # Mostly nothing has changed, and a GPU would wait for the copies below.
        if torch.equal(self.pair_S, self.filled_S):
            return

        # Stable: live slots keep their order.
        order_S = torch.argsort((self.pair_S == IDLE).int(), stable=True)
        self.pair_S = self.pair_S[order_S]
        self.filled_S = self.pair_S.clone()
        self.state = {name: t[order_S.to(self.device)] for name, t in self.state.items()}
        self.state["active"] = (self.pair_S != IDLE).to(self.device)
        pair_S = self.pair_S.clamp(min=0)  # an idle slot computes with the first pair's numbers
        self.hyper = {name: t[pair_S].to(self.device) for name, t in self.tracker.hyper.items()}

    def _start(self, slot: int, n: int) -> None:
        """Put pair n into a slot: as it was saved, or else at its beginning."""
        self.pair_S[slot] = n
        self.tracker.records["outcome"][n] = RUNNING
        if n in self.parked:
            for name, t in self.parked.pop(n).items():
                self.state[name][slot] = t[0].to(self.device)
        else:
            self._begin(slot, n, 0)

    def _begin(self, slot: int, n: int, before: int) -> None:
        """Put pair n into a slot at its start. before: steps of earlier tries."""
        pair, state = self.pairs[n], self.state
        tries = before // pair.recipe.again_at if before else 0  # again_at may be 0: no restarts
        if pair.start is None:
            theta_P = initial_theta(self.spec, pair.recipe, restart_seed(pair.seed.init_seed, tries))
        else:
            theta_P = torch.tensor(pair.start)

        theta_1P = theta_P.to(self.device)[None]
        for name, t in _initial_state(self.optimiser, theta_1P).items():
            state[name][slot] = t[0]
        state["step"][slot] = 0
        state["before"][slot] = before
        state["data_seed"][slot] = pair.seed.data_seed
        state["wd_scale"][slot] = 1
        state["mix_scale"][slot] = 1
        if hard_examples.COUNT in state:
            state[hard_examples.COUNT][slot] = 0


def backend_of(spec: Spec, recipe: Recipe, device: str, compiled: bool) -> EngineBackend | TorchBackend:
    """Choose a backend: the engine, which runs on a GPU if its test has passed there.

    Torch's eager programs are used where the engine is not wanted, where compiler or kernel are missing, or a teacher's
    kernel, and where the compiler does not end.
    """
    has_cuda = device == "cuda" and torch.cuda.is_available()
    is_for_cpus = callable(spec.kernel())  # what is made of a spec
    why: str | None = ""
    if compiled and not (has_cuda and is_for_cpus):
        try:
            why = _why_not(spec, recipe)
            if why is None:
                on_gpu = None if device == "cpu" or is_for_cpus else of_device(device).backend(spec, recipe)
                return on_gpu or EngineBackend(spec, recipe)
        except GivenUp as error:
            why = str(error)
    if why:
        log.warning("%s: training without the engine, a hundred times slower", why)
    return TorchBackend(spec, recipe, "cuda" if has_cuda else "cpu")


def _why_not(spec: Spec, recipe: Recipe) -> str | None:
    """Return why the engine cannot train a spec: "" where that was said before the start. None: it can."""
    taught = [teacher_of(recipe.teacher).spec] if recipe.teacher else []
    kernels = list[Kernel]()
    for each in (spec, *taught):
        found = choice_of(each)
        if not found.kernel:
            return f"its teacher goes by {found.why or 'torch'}" if kernels else ""
        kernels.append(found.kernel)
    missing = [tool for kernel in kernels if (tool := missing_to_train(kernel, recipe, spec.task))]
    if missing and SHIPPED.exists():
        return f"{preset_name(spec)} has no shipped kernel and needs {missing[0]}"
    return "" if missing else None


def tried_rate(spec: Spec, recipe: Recipe, slots: int, threads: int) -> float:
    """Train `slots` seeds for a few steps on CPUs, by tape or torch. Return their seed-steps per second."""
    torch.set_num_threads(threads)
    bank = Bank(spec, [Pair(recipe, Seed.of(n)) for n in range(slots)])
    train = _step_of(bank)  # and not `advance`, which trains to the next evaluation, and evaluates
    steps, start = -WARM_UP, 0.0
    while steps < 1 or time.perf_counter() < start + TRIED_S:
        if steps == 0:
            start = time.perf_counter()
        train()
        steps += 1
    return slots * steps / (time.perf_counter() - start)


def _step_of(bank: Bank) -> Callable[[], object]:
    """Return a function that trains the seeds of a new bank by one step."""
    backend = bank.backend
    if isinstance(backend, EngineBackend):
        return partial(backend.run_steps, backend.slots_of(bank.state, bank.hyper), 1)
    (tokens_STB, *_) = backend.make_block(bank.state, bank.hyper)
    return partial(backend.train_step, bank.state, bank.hyper, tokens_STB)


def _initial_state(optimiser: Optimiser, theta_SP: Tensor) -> State:
    """Return θ and the optimiser's state before the first step."""
    return {"theta": theta_SP, **optimiser.init(theta_SP)}


def _empty(spec: Spec, optimiser: Optimiser, slots: int, device: str) -> State:
    theta_SP = torch.zeros(slots, spec.params, device=device)
    state = _initial_state(optimiser, theta_SP)
    state |= {name: torch.zeros(slots, dtype=torch.int64, device=device) for name in ("step", "before", "data_seed")}
    state |= {name: torch.ones(slots, device=device) for name in ("wd_scale", "mix_scale")}
    return state | {"active": torch.zeros(slots, dtype=torch.bool, device=device)}
