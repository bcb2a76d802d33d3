"""Recording, replay and the answer cache."""
