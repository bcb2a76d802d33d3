"""A decorator for value objects: frozen to the type checker, plain dataclasses at run time.

A frozen dataclass sets each field through `object.__setattr__`, which makes construction three times
as expensive. A trial makes about twenty of them, a quarter of the cost of an attempt; the type
checker refuses an assignment all the same.

Compiling methods would take longer than anything else at the start of a run. So comparison, hash and
text are the same functions for all classes, and `__init__` is compiled when it is first asked for.
"""

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


class _FromFactory:
    """The default of a parameter whose value is made for each object."""

    def __repr__(self) -> str:
        return "<factory>"


_FROM_FACTORY = _FromFactory()


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value_object(cls: type[T]) -> type[T]:
    """Make *cls* a value object: keyword-only, compared by content, not to be modified."""
    make = dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
    return _with_shared_methods(make(cls))


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def positional_value_object(cls: type[T]) -> type[T]:
    """Make *cls* a value object whose fields may be given by position."""
    return _with_shared_methods(dataclass(slots=True, init=False, repr=False, eq=False)(cls))


def _with_shared_methods(cls: type[T]) -> type[T]:
    """Give *cls* what it does not define itself of `__init__`, `__eq__`, `__hash__` and `__repr__`."""
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

    if "__init__" not in cls.__dict__:
        cls.__init__ = _Init(cls)  # type: ignore[method-assign, assignment]
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


class _Init:
    """An `__init__` that is compiled, and takes this one's place, when it is first looked up."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., None]:
        init = _compiled_init(self._cls)
        self._cls.__init__ = init  # type: ignore[misc]
        bound: Callable[..., None] = init.__get__(instance, owner)
        return bound


def _compiled_init(cls: type) -> Any:
    """Return the `__init__` that `dataclass` would give *cls*."""
    declared = fields(cls)
    scope: dict[str, Any] = {"_FROM_FACTORY": _FROM_FACTORY}
    scope |= {f"_default_{f.name}": f.default for f in declared if f.default is not MISSING}
    scope |= {f"_make_{f.name}": f.default_factory for f in declared if _is_made(f)}
    parameters = [_parameter(f) for f in declared if not f.kw_only]
    if by_name := [_parameter(f) for f in declared if f.kw_only]:
        parameters += ["*", *by_name]
    lines = [f"def __init__(self, {', '.join(parameters)}) -> None:", *map(_assignment, declared)]
    lines.append("self.__post_init__()" if hasattr(cls, "__post_init__") else "pass")
    exec("\n ".join(lines), scope)  # noqa: S102 -- made of the names of fields alone
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {**{f.name: f.type for f in declared}, "return": None}
    return init


def _is_made(of: "Field[Any]") -> bool:
    return of.default_factory is not MISSING


def _parameter(of: "Field[Any]") -> str:
    """Return a field as a parameter."""
    if _is_made(of):
        return f"{of.name}=_FROM_FACTORY"
    return of.name if of.default is MISSING else f"{of.name}=_default_{of.name}"


def _assignment(of: "Field[Any]") -> str:
    """Return the line that sets a field."""
    if not _is_made(of):
        return f"self.{of.name} = {of.name}"
    return f"self.{of.name} = _make_{of.name}() if {of.name} is _FROM_FACTORY else {of.name}"
