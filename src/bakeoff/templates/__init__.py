"""Files that `bakeoff init` writes."""
