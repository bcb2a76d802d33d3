"""The event loop runs happen in: the fastest there is."""

import asyncio

from bakeoff._lib.standard_streams import open_closed_descriptors


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop where there is one, else Python's own."""
    open_closed_descriptors()  # uvloop aborts the process where a descriptor of its own is below 3
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
