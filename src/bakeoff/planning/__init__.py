"""What is to be run, decided before anything runs; pure."""
