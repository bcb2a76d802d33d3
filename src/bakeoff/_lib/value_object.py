"""A decorator for value objects: frozen to the type checker, plain dataclasses at run time.

A frozen dataclass sets each field through `object.__setattr__`, which makes construction three times
as expensive. A trial makes about twenty of them, a quarter of the cost of an attempt; the type
checker refuses an assignment all the same.
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value_object(cls: type[T]) -> type[T]:
    """Make *cls* a value object: keyword-only, compared by content, not to be modified."""
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def positional_value_object(cls: type[T]) -> type[T]:
    """Make *cls* a value object whose fields may be given by position."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
