"""External coding agents: the catalog, how they are installed, run and read."""
