"""The page of a seed that a home has: its curve among others'."""

import json
from unittest.mock import Mock

import pytest

from adders.explain.recorded import Recorded
from search.analysis.frames import records
from search.errors import Failure
from tests.commands import call, done


@pytest.mark.end_to_end
@pytest.mark.usefixtures("here")
def test_a_checkpoints_page_has_its_curve(smoke, tmp_path, monkeypatch):
    home, folder, page = ("--home", smoke.home), tmp_path / "adder", tmp_path / "page.html"
    done("pull", "smoke", "--seed", "778", "-o", folder, *home)
    done("explain", folder, "-o", page, *home)
    training = json.loads(page.read_text().split('id="model">')[1].split("</script>")[0])["nets"][0]["training"]
    curve = records("smoke", "curves", home=smoke.home).query("init_seed == 778")
    assert training["curve"] == {"steps": [20, 40, 60], "exact": curve["exact"].round(4).tolist()}
    assert len(training["curves"]) == 3 and "0 of 4 seeds" in training["words"]
    with monkeypatch.context() as patch:
        patch.setattr(Recorded, "training", Mock(side_effect=Failure("no curve")))
        without = call("explain", folder, "-o", tmp_path / "without.html", *home, code=0)
    assert "its records could not be read" in without.output
