"""The tenth of a study's seeds that no stopping rule ends, which measures the rules anew.

One of each ten is drawn by a hash, so that the tenth is exact in small studies too. A search draws of pairs of
configuration and seed, in the order in which they are planned: a draw of seeds alone would fall on the same few seeds
in each configuration, often on none. Arms that are compared seed by seed share a draw of seeds: else a rule would
end a seed in one arm and not in the other, and the pair would differ by that.
"""

import hashlib

from search.study.schema import Study
from search.study.stopping import BY_SEED
from trainer import Seed

BLOCK = 10
"""Seeds, or pairs, of which one is spared."""


class Draw:
    """The draw of one study. It depends on no outcome, on no interruption, and not on who trains what."""

    def __init__(self, study: Study):
        self.study = study
        self.places = {}
        """Number of its round, place in it, and the round, by `confirmation` and seed. A confirmation is one round."""
        for confirmation, rounds in ((False, study.rounds), (True, [study.confirm_seeds])):
            for layer, seeds in enumerate(rounds):
                for place, seed in enumerate(seeds):
                    self.places[confirmation, seed] = layer, place, seeds

    def is_spared(self, number: int, seed: Seed, confirmation: bool = False) -> bool:
        """Return whether no rule ends a seed.

        number: the place of its configuration among all, in the order in which they were planned. No rule ends a
        confirmation, unless its study asks for that: what a rule calls is noted, and runs on.
        """
        study = self.study
        if confirmation and not (study.confirm and study.confirm.hopeless):
            return True

        layer, place, seeds = self.places[confirmation, seed]
        if study.kind.spares == BY_SEED:
            # By the block's first seed alone: the same in every arm, and in every study of these seeds.
            block, place = divmod(place, BLOCK)
            return _draw(f"{seeds[block * BLOCK]}") == place
        block, place = divmod(number * len(seeds) + place, BLOCK)
        return _draw(f"{study.name} {confirmation} {layer} {block}") == place


def _draw(block: str) -> int:
    """Draw the place within a block of the one seed that is spared."""
    digest = hashlib.sha256(f"spared of {block}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % BLOCK
