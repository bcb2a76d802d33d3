"""What holds for every test."""

from hypothesis import settings

# a test must not fail because the machine is busy
settings.register_profile("bakeoff", deadline=None)
settings.load_profile("bakeoff")
