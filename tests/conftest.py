"""What every test runs under: no deadline, since a busy machine is not a fault."""

from hypothesis import settings

settings.register_profile("forethought", deadline=None)
settings.load_profile("forethought")
