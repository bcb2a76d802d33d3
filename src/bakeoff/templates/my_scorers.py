"""Scorers of your own: a function of the answer gives True, False or a number from 0 to 1."""


def brief(answer: str) -> float:
    """Full marks up to twelve words, then fewer and fewer."""
    words = len(answer.split())
    return 1.0 if words <= 12 else 12 / words
