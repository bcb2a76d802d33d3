"""The Pareto front: what nothing else beats at a lower price."""

from collections.abc import Iterable

from bakeoff._lib.value_object import value_object


@value_object
class Offer:
    """A candidate with what it costs, in money or time, and what it scores."""

    candidate: str
    price: float
    score: float


def pareto_front(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Return the offers that no other one beats: for less, or for the same with a better score.

    They come cheapest first, so each one scores more than the one before.
    """
    front: list[Offer] = []
    for offer in sorted(offers, key=lambda o: (o.price, -o.score, o.candidate)):
        if not front or offer.score > front[-1].score:
            front.append(offer)
    return tuple(front)
