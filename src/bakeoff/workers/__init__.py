"""Processes for a person's own Python that blocks: what runs in one is `bakeoff.worker`."""
