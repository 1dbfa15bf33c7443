"""The steps by which a recipe's schedules have ended. Without torch."""

from __future__ import annotations

from model.tasks import Columns, Task
from trainer.recipe.recipe import Recipe


def ends_after(recipe: Recipe, budget: int, task: Task) -> dict[str, int]:
    """Return the fields that reach beyond a budget, each with the step at which its schedule ends or its step lies.

    Those that are about numbers or carries are left out where the task has none.
    """
    ends = {"warmup": recipe.warmup}
    if isinstance(task, Columns):
        ends["curriculum"] = sum(steps for _, steps in recipe.curriculum)
    if recipe.hold != Recipe().hold:  # the usual one is for full budgets, and a seed's line says if it was too long
        ends["hold"] = recipe.hold
    if task.carries:
        # Points replace the fade, so only one of both can end late.
        if recipe.carry_shares:
            ends["carry_shares"] = int(recipe.carry_shares[-1][0])
        elif recipe.carry_mix:
            ends["fade_end"] = recipe.fade_end
    if recipe.wd_drops:  # rising, as their group has checked
        ends["wd_drops"] = recipe.wd_drops[-1][0]
    if recipe.l1_lambda:
        ends["l1_rise"] = recipe.l1_start + recipe.l1_rise
    if recipe.grokfast_lambda:
        ends["grokfast_end"] = recipe.grokfast_end
    if recipe.recycle_every:
        ends["recycle_from"] = recipe.recycle_from
    if recipe.freeze:
        ends["freeze"] = max(row[0] for row in recipe.freeze)
    period = {"cyclical": "wd_period", "warmup": "wd_warmup"}.get(recipe.wd_schedule)
    if period:
        ends[period] = getattr(recipe, period)
    return {name: end for name, end in ends.items() if end > budget}
