"""Tests lie where the code lies that they test: `tests/checkpoint/storage/test_restore.py` tests
`checkpoint/storage/restore.py`.

Behaviour that several modules have a part in has a file with a name of its own, in the folder that they have in common.
Its name must not be that of a module elsewhere: a reader would look for it there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("pipeline", "sources", "sinks", "formats", "checkpoint")


def misplaced(tests: Iterable[str], modules: Iterable[str]) -> list[str]:
    """What is wrong with the places of test files.

    Args:
        tests: their paths below the folder of tests.
        modules: paths of the modules of all packages.
    """
    modules = [PurePosixPath(path) for path in modules]
    folders = {path.parent for path in modules}
    wrong = []
    for test in map(PurePosixPath, tests):
        name = f"{test.stem.removeprefix('test_')}.py"
        there = [path for path in modules if path.name == name]
        if test.parent not in folders:
            wrong.append(f"tests/{test}: there is no {test.parent}/")
        elif there and test.parent / name not in there:
            wrong.append(f"tests/{test}: {name} lies in {', '.join(sorted(str(path.parent) for path in there))}")
    return wrong


def test_tests_lie_where_the_code_lies() -> None:
    modules = [str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    tests = ROOT / "tests"
    found = [str(path.relative_to(tests)) for package in PACKAGES for path in (tests / package).rglob("test_*.py")]
    assert len(found) > 100
    assert misplaced(found, modules) == []


def test_a_misplaced_test_is_found() -> None:
    modules = [
        "checkpoint/storage/restore.py",
        "checkpoint/batch.py",
        "sources/kafka/reader.py",
        "sources/files/reader.py",
    ]
    right = ["checkpoint/storage/test_restore.py", "checkpoint/storage/test_a_crash.py", "sources/files/test_reader.py"]
    assert misplaced(right, modules) == []
    assert misplaced(["checkpoint/test_restore.py"], modules) == [
        "tests/checkpoint/test_restore.py: restore.py lies in checkpoint/storage"
    ]
    assert misplaced(["sources/test_reader.py"], ["sources/source.py", *modules]) == [
        "tests/sources/test_reader.py: reader.py lies in sources/files, sources/kafka"
    ]
    assert misplaced(["storage/test_x.py"], modules) == ["tests/storage/test_x.py: there is no storage/"]
