"""A logged model's code: MLflow runs this file as it is, so it imports nothing of ours.

The model is an exported submission, which needs torch alone.
"""

from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Adder(PythonModel):
    """Answers `a + b` of a frame with these two columns, in a column `sum`."""

    def load_context(self, context: Any) -> None:
        found = spec_from_file_location("submission", context.artifacts["submission"])
        assert found and found.loader
        self.submission = module_from_spec(found)
        found.loader.exec_module(self.submission)
        self.model, self.metadata = self.submission.build_model()

    def predict(self, context: Any, model_input: pd.DataFrame, params: Any = None) -> pd.DataFrame:
        pairs = zip(model_input["a"], model_input["b"], strict=True)
        return pd.DataFrame({"sum": [self.submission.add(self.model, int(a), int(b)) for a, b in pairs]})


set_model(Adder())
