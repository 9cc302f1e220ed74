"""Codecs of keys and values."""

from __future__ import annotations

import json
import pickle
import struct
from typing import Any

import pytest

import quintet
from quintet import codecs


def test_text_json_and_structs(db: quintet.Database) -> None:
    text = db.table("text", keys=str, values="str")
    text["größe"] = "\U0001f600"
    assert dict(text.items()) == {"größe": "\U0001f600"} and "größe" in text
    assert list(text.prefix("grö")) == [("größe", "\U0001f600")]
    with pytest.raises(TypeError, match="expected str, found bytes"):
        text[b"a"] = "1"  # type: ignore[index]
    raw = db.table("text")
    raw[b"\xff"] = b"x"
    with pytest.raises(UnicodeDecodeError):
        list(text)
    documents = db.table("json", keys=str, values="json")
    document = {"b": [1, 2.5, None, True], "a": {"é": ""}}
    documents["d"] = document
    assert documents["d"] == document
    assert db.table("json")[b"d"] == '{"a":{"é":""},"b":[1,2.5,null,true]}'.encode()
    for refused in (float("nan"), object(), {1, 2}):
        with pytest.raises((TypeError, ValueError)):
            documents["e"] = refused
    records = db.table("records", keys=struct.Struct(">IB"), values=codecs.Struct("<d"))
    records[7, 1] = 0.5
    records[6, 255] = 1.5
    assert list(records.items()) == [((6, 255), 1.5), ((7, 1), 0.5)]
    assert list(records[(7, 0) :].keys()) == [(7, 1)]
    with pytest.raises(struct.error):
        records[-1, 1] = 1.0
    with pytest.raises(TypeError, match="prefix"):
        records.prefix((7,))
    assert db.table("json", values=json).get(b"d") == document


def test_pickle_is_refused_with_the_reason(db: quintet.Database) -> None:
    for choice in ("pickle", pickle, codecs.pickle):
        with pytest.raises(ValueError, match="runs whatever code") as refused:
            db.table("t", values=choice)
        assert "trust_every_writer=True" in str(refused.value)
    with pytest.raises(ValueError, match="runs whatever code"):
        codecs.pickle()
    table = db.table("t", values=codecs.pickle(trust_every_writer=True))
    table[b"a"] = {1, 2}
    assert table[b"a"] == {1, 2}


def test_any_object_with_the_methods_is_a_codec(db: quintet.Database) -> None:
    class Reversed:
        def encode(self, value: str) -> Any:
            return bytearray(value[::-1].encode())

        def decode(self, stored: bytes) -> str:
            assert type(stored) is bytes
            return stored.decode()[::-1]

    table = db.table("t", keys=Reversed(), values=Reversed())
    table["ab"] = "cd"
    assert table["ab"] == "cd" and dict(table.items()) == {"ab": "cd"}
    assert db.table("t")[b"ba"] == b"dc"
    assert isinstance(Reversed(), codecs.Codec)
    double = codecs.FunctionCodec(lambda number: b"%d" % (number * 2), lambda stored: int(stored) // 2)
    numbers = db.table("n", values=double)
    numbers[b"a"] = 21
    assert numbers[b"a"] == 21 and db.table("n")[b"a"] == b"42"
    with db.snapshot() as snapshot, db.transaction() as transaction:
        assert snapshot[numbers][b"a"] == 21 and transaction[numbers].pop(b"a") == 21


def test_failures_of_a_codec_reach_the_caller(db: quintet.Database) -> None:
    class Broken:
        def encode(self, value: Any) -> Any:
            if value == "text":
                return "no bytes"
            raise LookupError("encode")

        def decode(self, stored: bytes) -> Any:
            raise LookupError("decode")

    table, raw = db.table("t", values=Broken()), db.table("t")
    raw[b"a"] = b"1"
    for attempt in (
        lambda: table.put(b"a", 1),
        lambda: table[b"a"],
        lambda: table.get(b"a"),
        lambda: list(table.values()),
        lambda: list(table.items()),
        lambda: table.first(),
        lambda: table.get_many([b"a"]),
        lambda: table.update(b"a", lambda old: old),
        lambda: table.pop(b"a"),
    ):
        with pytest.raises(LookupError):
            attempt()
        raw[b"a"] = b"1"
    with pytest.raises(TypeError, match="expected bytes"):
        table[b"a"] = "text"
    assert list(table) == [b"a"]


@pytest.mark.parametrize("choice", [int, 5, "utf-8", object(), dict])
def test_what_is_no_codec_is_refused(db: quintet.Database, choice: Any) -> None:
    with pytest.raises(TypeError, match="no codec"):
        db.table("t", keys=choice)
