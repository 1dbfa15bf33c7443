"""The page of `explain` among the artifacts of a served UI."""

import pytest
from mlflow import MlflowClient

from adders.explain.explain import Shown, explain
from tests import CERTIFICATES
from tests.browser import chromium, visible, wait_until
from tests.scenarios.test_ui import entrance_of, folder, ui  # noqa: F401
from trainer.checkpoints.checkpoint import Checkpoint


@pytest.mark.full
def test_a_page_of_ours_runs_among_the_artifacts_and_a_strangers_does_not(ui, folder, tmp_path):  # noqa: F811
    client = MlflowClient(f"sqlite:///{folder / 'adder-runs/mlflow.db'}")
    experiment = client.get_experiment_by_name("recipes").experiment_id
    run = client.search_runs([experiment])[0].info.run_id
    client.log_text(run, explain([Shown("6p", Checkpoint.load(CERTIFICATES / "6p"))]), "ours.html")
    client.log_text(run, "<p>theirs</p><script>document.body.append('has run')</script>", "theirs.html")
    with chromium(tmp_path) as browser:
        browser.get(entrance_of(ui))
        for name, words in (("ours", "The winner's logit"), ("theirs", "theirs")):
            browser.get("about:blank")
            browser.get(f"{ui.address}/#/experiments/{experiment}/runs/{run}/artifacts/{name}.html")
            frame = wait_until(lambda: browser.find_elements("css selector", "iframe"), "the page")[0]
            browser.switch_to.frame(frame)
            assert "has run" not in visible(browser, words)
            browser.switch_to.default_content()
