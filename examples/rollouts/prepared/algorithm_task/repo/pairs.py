"""Pairs of numbers."""


def count_pairs(numbers: list[int], total: int) -> int:
    """Return how many pairs i < j have numbers[i] + numbers[j] == total."""
    found = 0
    for i in range(len(numbers)):
        for j in range(i + 1, len(numbers)):
            if numbers[i] + numbers[j] == total:
                found += 1
    return found
