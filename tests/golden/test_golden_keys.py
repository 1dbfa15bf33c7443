"""Keys, defaults and every field of all studies' configurations are what was stored.

A key digests what differs from the defaults, so a changed default would keep a key and change its meaning.
"""

import json

import pytest

from search.study.file import load_study
from tests.golden.make_golden import configurations, defaults, lasting, lengthened, stored, study_files

DEFAULTS, KEYS = stored("defaults"), stored("keys")


@pytest.mark.parametrize("kind", DEFAULTS)
def test_defaults_stay(kind):
    assert json.loads(json.dumps(defaults()[kind])) == lasting(DEFAULTS[kind])


@pytest.mark.parametrize("name", KEYS)
def test_a_study_asks_for_the_same_configurations(name):
    assert name in study_files(), "the study is in no file; if that is meant, take it out of keys.json"
    expected = [{part: lengthened(v, DEFAULTS) for part, v in entry.items()} for entry in KEYS[name]]
    for entry in expected:
        entry["recipe"] = lasting(entry["recipe"])
    assert configurations(load_study(str(study_files()[name]))) == expected


def test_every_study_is_stored():
    assert study_files().keys() <= KEYS.keys(), "python -m tests.golden.make_golden keys"
