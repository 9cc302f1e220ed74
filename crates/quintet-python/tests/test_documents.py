"""The examples of the documents, run as tests; the types of the package, checked by mypy."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import quintet
from quintet import _database, _errors, _quintet, _records, _views, aio, codecs
from quintet.compat import plyvel

ROOT = Path(__file__).parents[3]
MODULES = [quintet, aio, codecs, plyvel, _database, _errors, _records, _views]


def examples(document: str) -> list[tuple[int, str]]:
    """Returns the Python blocks of a document with their lines."""
    text = (ROOT / document).read_text()
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start()].count("\n") + 2, match.group(1)) for match in found]


@pytest.mark.skipif(not (ROOT / "docs/python.md").exists(), reason="not in a checkout")
@pytest.mark.parametrize("document", ["docs/python.md", "README.md"])
def test_the_examples_of_a_document_run(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = examples(document)
    assert blocks, "the document has examples"
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "examples"}
    try:
        for line, block in blocks:
            # The line numbers of a failure are those of the document.
            exec(compile("\n" * (line - 1) + block, document, "exec"), names)
    finally:
        for value in list(names.values()):
            if isinstance(value, quintet.Database):
                value.close()


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.__name__))
def test_the_examples_of_docstrings_run(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


def test_everything_public_has_a_docstring() -> None:
    bare = []
    for module in [*MODULES, _quintet]:
        assert module.__doc__, module
        for name, item in vars(module).items():
            is_own = str(getattr(item, "__module__", "")).startswith("quintet")
            if name.startswith("_") or not is_own or not callable(item):
                continue
            if not item.__doc__:
                bare.append(f"{module.__name__}.{name}")
            for method, function in vars(item).items() if inspect.isclass(item) else []:
                is_public = not method.startswith("_") and callable(function)
                if is_public and not inspect.isclass(function) and not function.__doc__:
                    bare.append(f"{name}.{method}")
    allowed = {"Chunks", "Bytes", "FunctionCodec.decode", "FunctionCodec.encode"}
    assert set(bare) - allowed == set()


def test_the_stub_has_what_the_module_has() -> None:
    stub = Path(quintet.__file__).with_name("_quintet.pyi").read_text()
    assert Path(quintet.__file__).with_name("py.typed").exists()
    classes = re.split(r"^class ", stub, flags=re.MULTILINE)[1:]
    described = {
        re.match(r"\w+", body).group(): set(re.findall(r"    def (\w+)\(", body))  # type: ignore[union-attr]
        for body in classes
    }
    for name, methods in described.items():
        kind = getattr(_quintet, name)
        own = {method for method in dir(kind) if method not in dir(object)}
        own -= {"__class_getitem__", "__reduce__", "__setattr__", "__delattr__"}
        assert methods - set(dir(kind)) == set(), f"{name}: only in the stub"
        inherited = described["TableView"] if name in ("Table", "TransactionTable") else set()
        assert own - methods - inherited <= {"__module__"}, f"{name}: not in the stub"
    internal = {"Bytes", "Chunks"}
    public = {name for name, item in vars(_quintet).items() if inspect.isclass(item)}
    assert public - internal == set(described)


USES = '''
import struct
from typing import Any, assert_type
import quintet
from quintet import codecs

db = quintet.open("db", sync=True)
plain = db.table("a")
assert_type(plain[b"k"], bytes)
assert_type(plain.get(b"k"), bytes | None)
assert_type(plain.get(b"k", 5), bytes | int)
text = db.table("b", keys=str, values=str, engine="slm")
assert_type(text["k"], str)
assert_type(list(text["a":"b"]), list[tuple[str, str]])
assert_type(text.pop("k"), str)
assert_type(dict(text.items()), dict[str, str])
assert_type(text.update("k", lambda old: (old or "") + "x"), str | None)
text.update({"a": "b"}, c="d")
assert_type(text.first(), tuple[str, str] | None)
documents = db.table("c", keys=str, values=codecs.json)
assert_type(documents["k"], Any)
with db.transaction() as transaction, db.snapshot() as snapshot, db.batch() as batch:
    assert_type(transaction[text]["a"], str)
    assert_type(snapshot[text].get_many(["a"]), list[str | None])
    assert_type(transaction.get(text, "a"), str | None)
    batch.put(text, "a", "b")
    batch[text]["a"] = "b"
text.merge("a", "b", ttl=3.5)

with db.changes(snapshot.lsn, tables=[text, "app"], unsynced=True) as feed:
    for commit in feed:
        assert_type(commit[0], quintet.Change)
        assert_type(commit[0].key, bytes | None)
    assert_type(feed.wait(1.5), quintet.Commit | None)
    assert_type(feed.wait(), quintet.Commit)
    assert_type([commit.end for commit in feed.follow()], list[int])
db.changes(tables=text)

def add(transaction: quintet.Transaction, delta: int) -> int:
    return delta

assert_type(db.transact(add, 5), int)
'''
MISUSES = [
    'text[b"k"]',
    'plain["k"] = b"v"',
    'text["k"] = b"v"',
    'snapshot[text]["k"] = "v"',
    'batch.put(text, "a", b"v")',
    "db.table(5)",
    'text.put("k", "v", tt=5)',
    "plain.get_many([1])",
    "db.changes(tables=5)",
    'db.changes("0")',
    'feed.wait("long")',
    "commit[0].kind == 'other'",
    'quintet.open("db", speed=11)',
    'quintet.open("db", memory_budget="much")',
]


def check_types(path: Path, source: str) -> str:
    """Returns what mypy says about a program."""
    path.write_text(source)
    command = [sys.executable, "-m", "mypy", "--strict", str(path)]
    command += ["--cache-dir", str(path.parent / "cache")]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=path.parent)
    return checked.stdout + checked.stderr


def test_programs_and_the_package_are_clean_for_mypy_strict(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    if sys.version_info < (3, 11):
        pytest.skip("the program uses assert_type")
    assert "Success" in (said := check_types(tmp_path / "uses.py", USES)), said
    said = check_types(tmp_path / "misuses.py", USES + "\n".join(MISUSES))
    start = USES.count("\n") + 1
    wrong = {int(line) for line in re.findall(r"misuses.py:(\d+): error", said)}
    assert wrong == set(range(start, start + len(MISUSES))), said
    # Without a cache of the installed package, this is the whole package.
    package = [sys.executable, "-m", "mypy", "--strict", "-p", "quintet"]
    package += ["--cache-dir", str(tmp_path / "cache")]
    checked = subprocess.run(package, capture_output=True, text=True, cwd=tmp_path)
    assert "Success" in checked.stdout, checked.stdout + checked.stderr
