"""Places in which runs are started for real, and every combination of transport, kind and become."""

import os

import pytest

from tests.contract.places import COMBINATIONS, Stage
from tests.run_place import Place


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path / "orch")
    yield place
    place.clean()


@pytest.fixture(scope="module")
def stage():
    saved = dict(os.environ)
    stage = Stage()
    os.environ["XDG_RUNTIME_DIR"] = str(stage.folder)
    yield stage
    stage.end()
    os.environ.clear()
    os.environ.update(saved)


@pytest.fixture(scope="module", params=COMBINATIONS, ids=lambda words: "-".join(words))
def combination(request, stage):
    path = os.environ["PATH"]
    yield stage.place(*request.param)
    os.environ["PATH"] = path
