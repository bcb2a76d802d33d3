"""The Pareto front: what nothing else beats at a lower price."""

from hypothesis import given
from hypothesis import strategies as st

from bakeoff.stats.rankings import Offer, pareto_front

NUMBERS = st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0])
OFFERS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=12).map(
    lambda pairs: [
        Offer(candidate=f"c{n}", price=price, score=score) for n, (price, score) in enumerate(pairs)
    ]
)


def beats(one: Offer, other: Offer) -> bool:
    at_least = one.price <= other.price and one.score >= other.score
    return at_least and (one.price, one.score) != (other.price, other.score)


@given(OFFERS)
def test_nothing_beats_what_is_on_the_front_and_something_what_is_not(offers: list[Offer]) -> None:
    front = pareto_front(offers)
    for offer in offers:
        is_beaten = any(beats(other, offer) for other in offers)
        has_equal = any((o.price, o.score) == (offer.price, offer.score) for o in front)
        assert has_equal is not is_beaten


@given(OFFERS)
def test_the_front_climbs(offers: list[Offer]) -> None:
    front = pareto_front(offers)
    assert [o.price for o in front] == sorted({o.price for o in front})
    assert [o.score for o in front] == sorted({o.score for o in front})
