"""Value objects behave as data classes do, though their methods are made when they are needed."""

import inspect
import pickle
from dataclasses import dataclass, field, replace

import pytest

from bakeoff._lib.value_object import positional_value_object, value_object


@value_object
class Basket:
    """Has a default, and one that is made for each object."""

    owner: str
    fruit: list[str] = field(default_factory=list)
    size: int = 3


@dataclass(kw_only=True)
class BasketOfPython:
    owner: str
    fruit: list[str] = field(default_factory=list)
    size: int = 3


@positional_value_object
class Point:
    x: int
    y: int = 0
    name: str = field(default="", kw_only=True)


@value_object
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("odd")


@value_object
class LargeBasket(Basket):
    handles: int = 2


def test_fields_are_set_by_keyword_and_have_their_defaults() -> None:
    basket = Basket(owner="Ada")
    assert (basket.owner, basket.fruit, basket.size) == ("Ada", [], 3)
    assert Basket(owner="Ada").fruit is not basket.fruit
    assert Point(1, name="p") == Point(1, 0, name="p")


def test_it_is_compared_hashed_shown_copied_and_pickled_by_its_fields() -> None:
    assert Point(1) != Point(2)
    assert hash(Point(1, 2)) == hash(Point(1, 2))
    assert repr(Point(1)) == "Point(x=1, y=0, name='')"
    assert replace(Point(1), y=5) == Point(1, 5)
    assert pickle.loads(pickle.dumps(Point(1, 5))) == Point(1, 5)


def test_a_wrong_call_is_refused_with_the_name_of_the_class() -> None:
    with pytest.raises(TypeError, match=r"Basket\.__init__\(\) missing .* 'owner'"):
        Basket()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        Basket(owner="Ada", colour="red")  # type: ignore[call-arg]


def test_the_signature_is_there_before_any_object_is() -> None:
    assert str(inspect.signature(Basket)) == str(inspect.signature(BasketOfPython))
    assert str(inspect.signature(Point)) == "(x: int, y: int = 0, *, name: str = '') -> None"


def test_what_a_class_checks_of_its_fields_is_checked() -> None:
    with pytest.raises(ValueError, match="odd"):
        Even(number=3)


def test_a_class_may_be_extended() -> None:
    large = LargeBasket(owner="Ada", handles=4)
    assert (large.owner, large.size, large.handles) == ("Ada", 3, 4)
