"""How an endpoint is asked: HTTP, server-sent events, retries, faults."""
