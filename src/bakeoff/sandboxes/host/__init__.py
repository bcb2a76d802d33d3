"""What boxes on this machine share: limits, clean-up, and the box that is only a folder."""
