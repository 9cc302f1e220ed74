"""Views of a table as a mapping has them, and views of the bytes of a value."""

from __future__ import annotations

import ctypes
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class TableKeys(KeysView[K]):
    """The keys of a table: iterable in both directions, with the operations of a set."""

    _mapping: Any

    def __iter__(self) -> Iterator[K]:
        return iter(self._mapping)

    def __reversed__(self) -> Iterator[K]:
        keys: Iterator[K] = reversed(self._mapping)
        return keys


class TableValues(ValuesView[V]):
    """The values of a table, in the order of their keys."""

    _mapping: Any

    def __iter__(self) -> Iterator[V]:
        values: Iterator[V] = self._mapping.range().values()
        return values

    def __reversed__(self) -> Iterator[V]:
        values: Iterator[V] = self._mapping.range(reverse=True).values()
        return values

    def __contains__(self, value: object) -> bool:
        return any(found is value or found == value for found in self)


class TableItems(ItemsView[K, V]):
    """The pairs of key and value of a table, in the order of the keys."""

    _mapping: Any

    def __iter__(self) -> Iterator[tuple[K, V]]:
        items: Iterator[tuple[K, V]] = self._mapping.range().items()
        return items

    def __reversed__(self) -> Iterator[tuple[K, V]]:
        items: Iterator[tuple[K, V]] = self._mapping.range(reverse=True).items()
        return items


def view(value: Any) -> memoryview:
    """Returns a read-only view of bytes that Rust owns.

    The stable interface of Python has no buffers before 3.11. An array of `ctypes` at the address
    has one. The view keeps the array, and the array keeps the owner of the bytes.
    """
    if not len(value):
        return memoryview(b"")
    array: Any = (ctypes.c_ubyte * len(value)).from_address(value.address)
    array._owner = value
    return memoryview(array).cast("B").toreadonly()
