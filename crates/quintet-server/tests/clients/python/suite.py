"""Runs tests of redis-py itself and compares the failures with those that are known.

`suite.py SOURCE PORT`: the unpacked source package, and the port of the server on this machine.
`suite_failures.txt` has the tests that fail, by reason. A test that fails and is not listed is an
error; so is a listed test that passes.
"""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

KNOWN = Path(__file__).with_name("suite_failures.txt")
# What is left out: clusters, modules, sentinels, TLS with their certificates, replicas.
MARKS = "not onlycluster and not redismod and not ssl and not replica"
FILES = [
    *(
        f"tests/{folder}test_{name}.py"
        for folder in ("", "test_asyncio/")
        for name in (
            "client",
            "commands",
            "connection",
            "connection_pool",
            "encoding",
            "keyspace_notifications",
            "lock",
            "monitor",
            "pipeline",
            "pubsub",
        )
    ),
    "tests/test_cache.py",
    "tests/test_max_connections_error.py",
    "tests/test_multiprocessing.py",
    "tests/test_asyncio/test_cwe_404.py",
]


def known_failures():
    """The tests that fail. Lines that begin with # are reasons."""
    lines = map(str.strip, KNOWN.read_text().splitlines())
    return {line for line in lines if line and not line.startswith("#")}


def run(source, port):
    """Runs the tests. Returns the identifiers of those that failed, passed and were skipped."""
    url = f"redis://localhost:{port}/0"
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["--timeout", "60", "--tb", "no", "-W", "ignore", f"--junitxml={report}"]
        command += ["--redis-url", url, "--redis-mod-url", url, "-m", MARKS, *FILES]
        result = subprocess.run(command, cwd=source)
        if result.returncode not in (0, 1):
            sys.exit(f"pytest ended with exit code {result.returncode}")
        root = xml.etree.ElementTree.parse(report).getroot()
    failed, passed, skipped = set(), set(), set()
    for case in root.iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed.add(name)
        elif "skipped" in kinds:
            skipped.add(name)
        else:
            passed.add(name)
    return failed, passed, skipped


def main():
    source, port = sys.argv[1:]
    known = known_failures()
    failed, passed, skipped = run(source, port)
    new, gone = sorted(failed - known), sorted(known & passed)
    for name in new:
        print(f"fails and is not listed in {KNOWN.name}: {name}")
    for name in gone:
        print(f"is listed in {KNOWN.name} and passes: {name}")
    print(f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    sys.exit(bool(new or gone))


main()
