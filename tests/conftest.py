"""What every test runs under: no deadline, since a busy machine is not a fault, and one thread.

Tests run side by side, and threads of one would spin for a core that another has.
"""

import os

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("forethought", deadline=None)
settings.load_profile("forethought")


def pytest_addoption(parser):
    parser.addoption("--rounds", type=int, default=300, help="rounds of six attempts of the soak")


@pytest.fixture
def rounds(request):
    """How many rounds the soak lasts."""
    return request.config.getoption("rounds")
