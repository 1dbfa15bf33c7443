"""The tenth of a study's seeds that no stopping rule ends, which measures the rules anew.

One of each ten is drawn by a hash, so that the tenth is exact in small studies too. A search draws of pairs of
configuration and seed, in the order in which they are planned: a draw of seeds alone would fall on the same few seeds
in each configuration, often on none. Arms that are compared seed by seed share a draw of seeds: else a rule would
end a seed in one arm and not in the other, and the pair would differ by that.
"""

import hashlib
from collections.abc import Iterable, Sequence

from search.study.schema import Study
from search.study.stopping import BY_HASH, BY_SEED
from search.study.trial import Configuration, Spared
from trainer import Seed

BLOCK = 10


def spared_of(
    study: Study,
    configurations: Sequence[str],
    work: Iterable[tuple[Configuration, Seed]],
    confirmation: bool = False,
) -> Spared | None:
    """Return the pairs of `work` that no rule ends; None where each seed's numbers say so (`trainer.bank.futility`).

    No rule ends a confirmation, unless its study asks for that: what a rule calls is noted, and runs on.
    configurations: keys in the order in which they were planned. It depends on no outcome, and neither on how the pairs
    are put into trials nor on interruptions.
    """
    if confirmation and not (study.confirm and study.confirm.hopeless):
        return frozenset((c.key, seed) for c, seed in work)
    if study.spares == BY_HASH:
        return None
    rounds = [study.confirm_seeds] if confirmation else study.rounds
    layers = {seed: (n, place) for n, seeds in enumerate(rounds) for place, seed in enumerate(seeds)}
    places = {key: place for place, key in enumerate(configurations)}

    def is_spared(configuration: Configuration, seed: Seed) -> bool:
        layer, place = layers[seed]
        seeds = rounds[layer]
        if study.spares == BY_SEED:
            block, place = divmod(place, BLOCK)
            return _draw(f"{seeds[block * BLOCK]}") == place
        block, place = divmod(places[configuration.key] * len(seeds) + place, BLOCK)
        return _draw(f"{study.name} {confirmation} {layer} {block}") == place

    return frozenset((c.key, seed) for c, seed in work if is_spared(c, seed))


def _draw(block: str) -> int:
    return int.from_bytes(hashlib.sha256(f"spared of {block}".encode()).digest()[:8], "big") % BLOCK
