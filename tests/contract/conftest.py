"""Places in which runs are started for real."""

import pytest

from tests.run_place import Place


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path / "orch")
    yield place
    place.clean()
