"""What is said of rules of a study whose configurations are all proposed."""

from search.study.file import shipped_study


def test_a_descent_goes_through_no_stages():
    study = shipped_study("compress-57p")
    assert study.kind.listed == [] and not study.kind.has_stages
    assert not any("stages" in words for _, words in study.kind.rules([]))
