"""Labs for the tests: one of each kind for the whole session, made when the first test asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from orchestrator.lab.embedded import EmbeddedLab
from orchestrator.lab.real import RealLab, why_not
from orchestrator.lab.surface import Lab


def require_real_lab() -> None:
    """Skip where a real lab cannot be; fail instead where ORCH_REQUIRE_REAL_LAB=1 says that it must."""
    lacking = why_not()
    if lacking is None:
        return
    if os.environ.get("ORCH_REQUIRE_REAL_LAB") == "1":
        pytest.fail(f"ORCH_REQUIRE_REAL_LAB is set, but a real lab cannot be made: {lacking}")
    pytest.skip(f"no real lab here: {lacking}")


@pytest.fixture(scope="session")
def real_lab() -> Iterator[RealLab]:
    require_real_lab()
    lab = RealLab.up(bound=True)
    yield lab
    lab.down()


@pytest.fixture(scope="session")
def neighbour(real_lab: RealLab) -> RealLab:
    """The session's lab, with container 201 running on the same GPUs."""
    real_lab.start_neighbour()
    return real_lab


@pytest.fixture(scope="session")
def embedded_lab() -> Iterator[EmbeddedLab]:
    lab = EmbeddedLab.up(bound=True)
    yield lab
    lab.down()


@pytest.fixture(
    params=[
        pytest.param("real_lab", marks=pytest.mark.real_lab),
        pytest.param("embedded_lab", marks=pytest.mark.lab),
    ]
)
def either_lab(request: pytest.FixtureRequest) -> Lab:
    lab: Lab = request.getfixturevalue(request.param)
    return lab
