"""Tests lie where the code lies that they test: `tests/checkpoint/storage/test_restore.py` tests
`checkpoint/storage/restore.py`.

Behaviour that several modules have a part in has a file with a name of its own, in the folder that they have in common.
Its name must not be that of a module elsewhere: a reader would look for it there.

And what `docs/architecture.md` names is there.
"""

from __future__ import annotations

import re
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


def unknown_names(page: str, files: Iterable[str], sources: str) -> list[str]:
    """What a page names in backticks and nobody has: files, and in rows of tables the functions behind `file.py`:.

    Args:
        files: paths of all files.
        sources: the code of all packages.
    """
    files = list(files)
    named = set(re.findall(r"`([\w./-]+\.(?:py|md|sh|yaml))`", page))
    unknown = [name for name in named if not any(f"/{file}".endswith(f"/{name}") for file in files)]
    for row in page.splitlines():
        if row.startswith("|") and ".py`:" in row:
            functions = re.findall(r"`(_?[a-z][a-z_]*)`", row)
            unknown += [name for name in functions if f"def {name}(" not in sources and f"class {name}" not in sources]
    return sorted(unknown)


def test_what_the_architecture_page_names_is_there() -> None:
    parts = (*PACKAGES, "docs", "docker", "tests", "pyspark_weir")
    paths = [path for part in parts for path in (ROOT / part).rglob("*") if "__pycache__" not in path.parts]
    files = [str(path.relative_to(ROOT)) for path in [*paths, *ROOT.glob("*")]]
    sources = "".join(path.read_text() for part in PACKAGES for path in (ROOT / part).rglob("*.py"))
    assert unknown_names((ROOT / "docs/architecture.md").read_text(), files, sources) == []


def test_a_name_that_nobody_has_is_found() -> None:
    page = "`gone.py` and `here.py`\n| x | `here.py`: `run`, `ran` | |\nno table: `here.py`: `walked`"
    assert unknown_names(page, ["a/here.py", "a/not_gone.py"], "def run() -> None:") == ["gone.py", "ran"]
