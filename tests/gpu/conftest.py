"""A fixture that several files of these tests use."""

import pytest

from tests.gpu.standin import standin_folder


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """A folder of CUDA's libraries that stand in for a GPU's."""
    return standin_folder(tmp_path_factory.mktemp("cuda"))
