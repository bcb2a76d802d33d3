"""What is built when."""
