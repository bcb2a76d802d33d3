"""What boxes on this host share: limits, process supervision, cleanup, and the local sandbox."""
