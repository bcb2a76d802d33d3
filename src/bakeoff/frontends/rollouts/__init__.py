"""eval_rollouts.py: prepared tasks, models and rollouts."""
