"""What a module must be as a family, to be asked and trained: tried on problems of its task, and refused in one line.

Axes: B problem, T position, V token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from model.doors import first_line
from own_modules.loading import (
    MOST_PARAMS,
    Wrong,
    again,
    build,
    class_of,
    constraints_of,
    given,
    parameters,
    problems_of,
    seeded,
    template,
    too_many,
)

if TYPE_CHECKING:
    from model.spec import Parts
    from own_modules.spec import Module

CLOSE = 1e-3
"""Relative and absolute: as far as rounding moves logits of different shapes of call."""

UNEVEN = {"padding_idx": None, "scale_grad_by_freq": False}
"""Fields of embeddings, with their off values: of many seeds at once torch has other slopes."""


@lru_cache(1024)
def check_module(spec: Module, is_trained: bool = False) -> None:
    """Raise ValueError, naming the module and what is wrong, unless it can be asked the task.

    is_trained: and be trained. A checkpoint's net is asked, whatever trained it.
    """
    try:
        _check_parts(spec, is_trained)
        # The same seed by another load of its text, and another seed: what a seed does not say, or all share, differs.
        first, second, other = build(spec, 0), build(again(spec), 0), build(spec, 1)
        _check_memory(dict(first.named_parameters()))
        _check_draws(first, second, other)
        if is_trained:
            _check_seeds(spec)
        _check_calls(spec, first, [second, other] if is_trained else [second], is_trained)
    except ValueError as error:
        text = str(error)
        raise ValueError(text if text.startswith(spec.module) else f"{spec.module}: {text}") from None


def _check_parts(spec: Module, is_trained: bool) -> None:
    """Refuse parts that draw at random or keep something from call to call, and parameters that are none of θ."""
    # First by what parts are, since that names the part: calls, below, only show that something draws.
    for name, part in template(spec).named_modules():
        called = name or "it"  # the whole module has no name
        if "Dropout" in type(part).__name__ and getattr(part, "p", None):
            raise ValueError(f"{called} is dropout, whose draws no record could repeat: set p=0")
        if getattr(part, "track_running_stats", False):
            raise ValueError(f"{called} keeps running statistics, which are no parameters: use LayerNorm")
        is_uneven = is_trained and isinstance(part, nn.Embedding | nn.EmbeddingBag)
        for option, off in UNEVEN.items() if is_uneven else ():
            if getattr(part, option) != off:
                raise ValueError(f"{called} has {option}, whose slopes differ where seeds train together: {off} is off")

    named = dict(template(spec).named_parameters())
    for name, parameter in named.items():
        if parameter.dtype != torch.float32:
            raise ValueError(f"parameter {name} must be float32, and is {parameter.dtype}")
        if not parameter.requires_grad:
            raise ValueError(f"parameter {name} is not trained: make it a buffer")
    if len(spec.shapes()) < len(named):
        raise ValueError("two parameters have one name once dots are underscores")
    if not 0 < spec.params <= MOST_PARAMS:
        raise ValueError(too_many(spec.params))

    constraints_of(spec)
    for kind in spec.parts.values():
        _check_sizes(spec, kind)


def _check_memory(named: Mapping[str, Tensor]) -> None:
    """Refuse parameters that share memory: θ has numbers for each of them, and a module would hold one's."""
    names, owners = ["", *named], dict[int, Tensor]()
    for n, (name, parameter) in enumerate(named.items(), start=1):
        storage = parameter.untyped_storage()
        # Number by number, since parts of one tensor may lie side by side; 0 is nobody's. All are float32.
        owner = owners.setdefault(storage.data_ptr(), torch.zeros(storage.nbytes() // 4, dtype=torch.int32))
        own = owner.as_strided(parameter.shape, parameter.stride(), parameter.storage_offset())
        if own.any():
            raise ValueError(f"parameters {names[int(own.max())]} and {name} share memory: share the parameter itself")
        own.fill_(n)


def _check_sizes(spec: Module, kind: Parts) -> None:
    """Raise ValueError unless parameters have their parts along the axes that are named, and nowhere else."""
    count = spec.value_of(kind.size)
    if count < 2:
        return
    # Tried by building one of a part less: a class may say anything of its axes.
    shapes = spec.replaced({kind.size: count - 1}).shapes()
    for name, shape in spec.shapes().items():
        expected = list(shape)
        if name in kind.axes:
            axis = kind.axes[name]
            size_of_part = expected[axis] // count
            # And not less one part: an axis that is no whole number of parts must not pass.
            expected[axis] = size_of_part * (count - 1)
        actual = list(shapes.get(name, ()))
        if name not in shapes or actual != expected:
            raise ValueError(f"parts: with {kind.size}={count - 1} {name} must be {expected}, and is {actual}")


def _check_draws(first: nn.Module, second: nn.Module, other: nn.Module) -> None:
    """Raise ValueError for first values that a seed does not repeat, and constants that are drawn."""
    for (name, one), two in zip(first.named_parameters(), second.parameters(), strict=True):
        if not torch.equal(one, two):
            raise ValueError(f"parameter {name} is not drawn by torch's generator: no seed repeats it")
    for (name, one), *others in zip(first.named_buffers(), second.buffers(), other.buffers(), strict=True):
        if not all(torch.equal(one, two) for two in others):
            raise ValueError(f"buffer {name} is drawn at random, and all seeds share it: make it a parameter")


def _check_seeds(spec: Module) -> None:
    """Raise ValueError for code that seeds the generator. Without a draw seeds may begin alike."""
    left = list[Tensor]()
    for seed in (0, 1):
        with seeded(seed):
            class_of(spec)(**given(spec))
            left.append(torch.get_rng_state())
    # Whatever is drawn, they differ: where not, the code has seeded the generator, be it after its first draws.
    if torch.equal(*left):
        raise ValueError("all seeds draw the same once its code has seeded the generator: it must not")


def _check_calls(spec: Module, module: nn.Module, others: list[nn.Module], is_trained: bool) -> None:
    """Refuse what a call returns or changes; where it is trained, what its slopes are.

    others: the module, built anew.
    """
    task = spec.task
    tokens_BT = _called(lambda: problems_of(task), "cannot be asked its task")
    rows, length = tokens_BT.shape

    # A copy is given to the module, which may write to it.
    read = tokens_BT.clone()
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    versions = {name: parameter._version for name, parameter in module.named_parameters()}
    logits = _called(lambda: module(read), f"fails on tokens 0 to {task.vocabulary - 1} {list(tokens_BT.shape)}")
    if not torch.equal(read, tokens_BT):
        raise ValueError("it changes the tokens that it is given")
    for name, buffer in module.named_buffers():
        if name not in before or not torch.equal(buffer, before[name]):
            raise ValueError(f"a call changes buffer {name}: seeds would share it")
    for name, parameter in module.named_parameters():
        # By what torch counts, not by value: a bound changes no number that lies within it.
        if parameter._version != versions.get(name):
            raise ValueError(f"a call changes parameter {name}: only training may")
    _check_shape(spec, logits, rows, length)
    _check_company(module, tokens_BT, logits)
    named = dict(module.named_parameters())
    for other in others:
        anew = _called(partial(functional_call, other, named, (tokens_BT,)), "fails when it is built again")
        if not _is_close(anew, logits):
            raise ValueError("it answers by numbers drawn outside parameters and buffers, which no record has")
    if spec.answers > 1:
        _check_causal(module, tokens_BT, logits, task.outputs)
    _check_together(spec, module, tokens_BT, is_trained)


def _check_company(module: nn.Module, tokens_BT: Tensor, logits: Tensor) -> None:
    """Raise ValueError where an answer depends on other problems, or on how often the module was called."""
    # All seeds of a bank are one call, and a seed must not depend on its company, or on how often it was called.
    with seeded(1):
        other = _called(lambda: module(tokens_BT), "fails when it is called again")
    if not torch.equal(logits, other):
        raise ValueError("two calls on the same tokens differ: it draws at random, or keeps what it has seen")
    alone = _called(lambda: module(tokens_BT[:1]), "fails on one problem")
    if not _is_close(alone, logits[:1]):
        raise ValueError("an answer depends on the other problems of the batch")


def _check_causal(module: nn.Module, tokens_BT: Tensor, logits: Tensor, outputs: int) -> None:
    """Raise ValueError where a position's logits depend on later tokens, or on whether there are any."""
    # Training is teacher-forced: the whole answer is read at once, while decoding has only its beginning.
    earlier = logits[:, :-1]
    changed_BT = tokens_BT.clone()
    changed_BT[:, -1] = (changed_BT[:, -1] + 1) % outputs
    later = _called(lambda: module(changed_BT), "fails on other tokens")
    if not _is_close(later[:, :-1], earlier):
        raise ValueError("it reads the answer that it is asked for: a position must see earlier tokens alone")
    shorter = _called(lambda: module(tokens_BT[:, :-1]), "fails on a sequence without its last token")
    if not _is_close(shorter, earlier):
        raise ValueError("a position's logits depend on the sequence's length")


def _check_shape(spec: Module, logits: object, rows: int, length: int) -> None:
    """Raise ValueError for other shapes than [B, T, V], or [B, V] of one answer."""
    outputs = spec.task.outputs
    if not isinstance(logits, Tensor):
        raise ValueError(f"it must return a tensor of logits, and returns {type(logits).__name__}")

    forms: list[tuple[int, ...]] = [(rows, length)]
    wanted = f"[{rows}, {length}, V]"
    if spec.answers == 1:
        forms.append((rows,))
        wanted += f" or [{rows}, V]"
    if logits.shape[:-1] not in forms:
        raise ValueError(f"it must return logits {wanted} for tokens [{rows}, {length}], not {list(logits.shape)}")

    # More logits than answers may be: those behind are for tokens that are only read.
    if logits.shape[-1] < outputs:
        raise ValueError(f"it has {logits.shape[-1]} logits, and {spec.task.title} has {outputs} answers")
    if logits.dtype != torch.float32:
        raise ValueError(f"its logits must be float32, and are {logits.dtype}")
    if not torch.isfinite(logits[..., :outputs]).all():
        raise ValueError("its logits are not finite before training")


def _check_together(spec: Module, module: nn.Module, tokens_BT: Tensor, is_trained: bool) -> None:
    """Raise ValueError unless two seeds at once give what each gives alone, and where they are trained its slope."""
    theta_SP = torch.stack([spec.initial(seed) for seed in (0, 1)])
    tokens_1TB = tokens_BT.T[None].int()
    fails = "cannot be trained many seeds at once"
    together = _called(lambda: spec.forward(theta_SP, tokens_1TB, first=spec.prompt - 1), fails)
    named = parameters(spec, theta_SP)
    for seed in (0, 1):
        own = {name: t_S[seed] for name, t_S in named.items()}
        alone = functional_call(module, own, (tokens_BT,))
        last_BV = alone if alone.dim() == 2 else alone[:, -1]
        if not _is_close(together[:, seed, -1].T, last_BV):
            raise ValueError("two seeds at once do not give what each gives alone")
    if not is_trained:
        return

    def total(theta_SP: Tensor) -> Tensor:
        # As in training, where each seed has problems of its own.
        tokens_STB = tokens_1TB.expand(len(theta_SP), -1, -1)
        logits: Tensor = spec.forward(theta_SP, tokens_STB, first=spec.prompt - 1)
        return logits[: spec.task.outputs].square().sum()  # other logits may be masked with -∞

    slope_SP = _called(lambda: grad(total)(theta_SP), fails)
    if not torch.isfinite(slope_SP).all():
        raise ValueError("its gradient is not finite before training")
    alone_P = grad(total)(theta_SP[1:])[0]
    if (slope_SP[1] - alone_P).abs().max() > CLOSE * alone_P.abs().max():
        raise ValueError("two seeds at once do not give the slope that each gives alone")


def _called(call: Callable[[], Tensor], fails: str) -> Tensor:
    """Return what a call returns. Raises ValueError for whatever its code raises."""
    try:
        return call()
    except Wrong as error:
        raise ValueError(f"it {fails}: {first_line(error)}") from None


def _is_close(one: Tensor, two: Tensor) -> bool:
    return one.shape == two.shape and torch.allclose(one, two, rtol=CLOSE, atol=CLOSE)
