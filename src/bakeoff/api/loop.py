"""The event loop runs happen in: the fastest there is."""

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop where there is one, else Python's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
