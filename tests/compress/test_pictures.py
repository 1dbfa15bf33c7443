"""Pictures of a study's descents."""

from compress.candidates import TieCandidate
from compress.pictures import sets_figure


def test_a_picture_of_sets_has_each_of_them_in_one_class():
    """Also what has none wrong and is not accepted, for it is not proved."""
    facts = [(0.4, None), (1.0, 3), (1.0, 0)]
    judged = [TieCandidate(n, 1, (1,), reached=r, wrong=wrong) for n, (r, wrong) in enumerate(facts)]
    words = [text.get_text() for text in sets_figure(judged).axes[0].get_legend().get_texts()]
    assert words[:3] == ["not grokked (1)", "right on the selection problems, not accepted (2)", "kept (0)"]
