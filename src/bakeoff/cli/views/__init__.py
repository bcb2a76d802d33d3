"""What a run looks like on a terminal: live, plain, as tables."""
