"""A program that greets people."""
