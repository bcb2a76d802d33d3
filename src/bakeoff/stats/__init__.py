"""Pure statistics: plain numbers in, frozen values out; no clock, no files, no hidden random."""
