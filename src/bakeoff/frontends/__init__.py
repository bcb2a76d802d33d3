"""The four front doors with their own commands, folders and files."""
