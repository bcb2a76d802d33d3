"""Rate limits, concurrency limits and the circuit breaker of an endpoint."""
