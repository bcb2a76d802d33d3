"""Nouns: frozen to the type checker, plain to the interpreter.

A frozen dataclass sets each field through `object.__setattr__`, which makes it three times as dear
to construct. A trial makes some twenty of them, and that was a quarter of what an attempt cost; the
type checker refuses an assignment all the same.
"""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def noun(cls: type[T]) -> type[T]:
    """Make *cls* a value: keyword-only, compared by content, never to be changed."""
    return dataclass(slots=True, kw_only=True, unsafe_hash=True)(cls)
