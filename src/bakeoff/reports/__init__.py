"""Summaries rendered; no arithmetic here."""
