"""A decorator for value objects: frozen to the type checker, plain dataclasses at run time.

A frozen dataclass sets each field through `object.__setattr__`, which makes construction three times
as expensive. A trial makes about twenty of them, a quarter of the cost of an attempt; the type
checker refuses an assignment all the same.

Only `__init__` is compiled for each class. Comparison, hash and text are the same functions for all:
compiling them would take longer than anything else at the start of a run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value_object(cls: type[T]) -> type[T]:
    """Make *cls* a value object: keyword-only, compared by content, not to be modified."""
    return _with_shared_methods(dataclass(slots=True, kw_only=True, repr=False, eq=False)(cls))


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def positional_value_object(cls: type[T]) -> type[T]:
    """Make *cls* a value object whose fields may be given by position."""
    return _with_shared_methods(dataclass(slots=True, repr=False, eq=False)(cls))


def _with_shared_methods(cls: type[T]) -> type[T]:
    """Give *cls* what it does not define itself of `__eq__`, `__hash__` and `__repr__`."""
    declared = fields(cls)  # type: ignore[arg-type]  # the decorator above made it a dataclass
    compared = _values(tuple(f.name for f in declared if f.compare))
    hashed = _values(tuple(f.name for f in declared if (f.compare if f.hash is None else f.hash)))
    shown = tuple(f.name for f in declared if f.repr)

    def equal(self: object, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compared(self) == compared(other)

    def hash_of(self: object) -> int:
        return hash(hashed(self))

    @recursive_repr()
    def text(self: object) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    for name, method in (("__eq__", equal), ("__hash__", hash_of), ("__repr__", text)):
        if (
            cls.__dict__.get(name) is None
        ):  # Python itself sets `__hash__ = None` beside an `__eq__`
            setattr(cls, name, method)
    return cls


def _values(names: tuple[str, ...]) -> Callable[[object], tuple[Any, ...]]:
    """Return a function that gives the fields *names* of an object as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda _: ()
    (name,) = names
    return lambda value: (getattr(value, name),)
