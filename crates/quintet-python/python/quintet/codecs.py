"""Codecs: how keys and values become bytes.

A codec is an object with `encode(object) -> bytes` and `decode(bytes) -> object`. `bytes` and `str`
are built in and fastest. Ranges are in the order of the encoded bytes.
"""

from __future__ import annotations

import json as _json
import struct as _struct
from typing import Any, Callable, Generic, Protocol, TypeVar, Union, runtime_checkable

__all__ = ["Codec", "FunctionCodec", "Json", "Struct", "json", "pickle", "resolve"]

T = TypeVar("T")


@runtime_checkable
class Codec(Protocol[T]):
    """What a codec has to offer."""

    def encode(self, value: T, /) -> bytes:
        """Returns the bytes of a key or a value."""

    def decode(self, stored: bytes, /) -> T:
        """Returns the object of stored bytes."""


class FunctionCodec(Generic[T]):
    """A codec of two functions."""

    def __init__(self, encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> None:
        self.encode = encode
        self.decode = decode


class Json:
    """JSON as compact UTF-8, with sorted names, so that equal objects have equal bytes."""

    def __init__(self) -> None:
        encoder = _json.JSONEncoder(
            ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
        )
        self._text = encoder.encode

    def encode(self, value: Any, /) -> bytes:
        """Returns the JSON of `value`. Raises `TypeError` or `ValueError` for what JSON lacks."""
        return self._text(value).encode("utf-8")

    def decode(self, stored: bytes, /) -> Any:
        """Returns the object of JSON."""
        return _json.loads(stored)


class Struct:
    """A record of `struct.Struct`: one value for a format of one, a tuple for several.

    A big-endian format of unsigned integers, such as `">QI"`, keeps the order of the values, and so
    is of use for keys.
    """

    def __init__(self, layout: Union[str, bytes, _struct.Struct]) -> None:
        self._struct = layout if isinstance(layout, _struct.Struct) else _struct.Struct(layout)
        fields = len(self._struct.unpack(bytes(self._struct.size)))
        self._is_single = fields == 1

    def encode(self, value: Any, /) -> bytes:
        """Returns the packed bytes."""
        return self._struct.pack(value) if self._is_single else self._struct.pack(*value)

    def decode(self, stored: bytes, /) -> Any:
        """Returns the unpacked value or tuple."""
        fields = self._struct.unpack(stored)
        return fields[0] if self._is_single else fields


json = Json()

_PICKLE = (
    "pickle is refused: reading a pickled value runs whatever code its bytes name, so a program "
    "that can write to the database, or to its files, runs code in every reader. Use "
    '"json", a struct, or a codec of your own. If every writer is trusted: '
    "quintet.codecs.pickle(trust_every_writer=True)"
)


def pickle(*, trust_every_writer: bool = False, protocol: int = 4) -> FunctionCodec[Any]:
    """Returns a codec that pickles, if the caller trusts every writer of the database.

    Raises `ValueError` with the reason otherwise.
    """
    if trust_every_writer is not True:
        raise ValueError(_PICKLE)
    import pickle as module

    return FunctionCodec(lambda value: module.dumps(value, protocol), module.loads)


def resolve(choice: Any) -> Any:
    """Returns the codec that `choice` names: "bytes", "str", or an object with the methods."""
    if choice is bytes or choice == "bytes":
        return "bytes"
    if choice is str or choice == "str":
        return "str"
    if choice == "json" or choice is _json:
        return json
    if isinstance(choice, _struct.Struct):
        return Struct(choice)
    if choice == "pickle" or getattr(choice, "__name__", None) == "pickle" or choice is pickle:
        raise ValueError(_PICKLE)
    if callable(getattr(choice, "encode", None)) and callable(getattr(choice, "decode", None)):
        if isinstance(choice, type) or isinstance(choice, str):
            raise TypeError(f"{choice!r} is no codec")
        return choice
    raise TypeError(
        f"{choice!r} is no codec: give bytes, str, \"json\", a struct.Struct, or an object with "
        "encode and decode"
    )
