"""The local model proxy that programs in boxes talk to."""
