"""The nouns, the ports and the errors; the standard library only."""
