"""The four front ends with their own commands, folders and files."""
