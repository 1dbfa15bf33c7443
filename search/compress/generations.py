"""NSGA-II for proposals that are told out of order.

A generation begins when the one before has been told often enough; what is still in training then is told
later and would be nobody's parent. So parents are chosen of all that has been told.
"""

from __future__ import annotations

from typing import Any

import optuna
from optuna.samplers import NSGAIISampler
from optuna.trial import FrozenTrial, TrialState


class Generations(NSGAIISampler):
    """NSGA-II whose parents are the best of all that has been told, whichever generation that was."""

    def select_parent(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        told = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return self._elite_population_selection_strategy(study, told)

    def attributes(self, generation: int) -> dict[str, Any]:
        """What it notes of a trial of a generation."""
        return {self._get_generation_key(): generation}
