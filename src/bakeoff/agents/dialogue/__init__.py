"""The dialogue agent: an instructor leads a conversation with the candidate."""
