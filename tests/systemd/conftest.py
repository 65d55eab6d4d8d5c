"""The lab is booted once for a module; `service` is the shipped unit in it, of the user's manager or the system's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
sys.path.insert(0, str(Path(__file__).parent))
from harness import until
from service import KEPT, Service, install, units
from systemd_lab import LabRefused, SystemdLab, needed, refusal


@pytest.fixture(scope="module")
def lab() -> Iterator[SystemdLab]:
    if (reason := refusal()) is not None:
        needed(reason)
    lab = SystemdLab(units(), until, KEPT)
    try:
        with lab:
            install(lab)
            yield lab
    except LabRefused as error:
        needed(f"systemd cannot run in namespaces here: {error}")


@pytest.fixture(scope="module")
def running(lab: SystemdLab, request: pytest.FixtureRequest) -> Iterator[Service]:
    """One daemon for all tests under a manager; a test names the manager, user or system."""
    service = Service(lab, request.param)
    yield service
    service.stop()
    assert not service.processes(), "left running"


@pytest.fixture
def service(running: Service) -> Service:
    """It serves, and no turn runs."""
    running.start()
    return running
