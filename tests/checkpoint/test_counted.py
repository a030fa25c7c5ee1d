from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from checkpoint.counted import counted

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("pipeline", "sources", "sinks", "formats", "checkpoint")
THINGS: Final = (
    "bytes|checkpoints|entries|fields|files|flights|gaps|items|jobs|keys|letters|messages|offsets|partitions|"
    "processes|records|restarts|results|rows|segments|slots|splits|states|subtasks|timers|times"
)
_COUNT: Final = re.compile(rf"^ (?:(?:bad|completed|dead|failed|more|old) )?(?:{THINGS})\b(?!/s)")
_LOGGED: Final = re.compile(rf"%d (?:{THINGS})\b")
_SHOWN: Final = re.compile(rf"\$\{{(?!counted)[^{{}}]*\}} (?:more )?(?:{THINGS})\b")
_CONSTANT: Final = re.compile(r"(\w+\.)?_?[A-Z][A-Z_]+")
"""Is never 1."""
_NAMES: Final = ("self.checkpoint", "self.where", "uneven")
"""Count nothing: `checkpoint 6 records …`, `in FOLDER files of …`, `3.5 times as many`."""


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (1, ("record",), "1 record"),
        (0, ("record",), "0 records"),
        (1_204, ("record",), "1,204 records"),
        (1.0, ("byte",), "1 byte"),
        (0.6, ("byte",), "1 byte"),
        (2.4, ("byte",), "2 bytes"),
        (1, ("entry is", "entries are"), "1 entry is"),
        (2, ("entry is", "entries are"), "2 entries are"),
    ],
)
def test_one_thing_is_not_many(number: float, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text


def uncounted(source: str) -> Iterator[str]:
    """Texts that count something and would say `1 records`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for value, behind in zip(node.values, node.values[1:], strict=False):
                if isinstance(value, ast.FormattedValue) and isinstance(behind, ast.Constant):
                    what = ast.unparse(value.value)
                    names = _CONSTANT.fullmatch(what) or what in _NAMES or value.conversion != -1
                    if _COUNT.match(behind.value) and not names:
                        yield f"line {node.lineno}: {{{what}}}{behind.value}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (found := _LOGGED.search(node.value)):
            yield f"line {node.lineno}: {found[0]}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('f"{n} records"', True),
        ('f"{n:,} bad records were left out"', True),
        ('f"{len(x)} bytes"', True),
        ('log("%d checkpoints", n)', True),
        ("f\"{counted(n, 'record')} came\"", False),
        ('f"{rate:,.0f} records/s"', False),
        ('f"at most {MOST} bytes"', False),
    ],
)
def test_a_count_without_the_helper_is_found(source: str, found: bool) -> None:
    assert bool(list(uncounted(source))) == found


def test_all_messages_count_by_the_helper() -> None:
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    scripts = list((ROOT / "pipeline" / "http" / "page").glob("*.js"))
    assert len(modules) > 300
    assert len(scripts) > 3
    wrong = [
        f"{path.relative_to(ROOT)}, {text}"
        for path in modules
        if "bench" not in str(path)  # which counts thousands
        for text in uncounted(path.read_text(encoding="utf-8"))
    ]
    wrong += [f"{path.name}: {one[0]}" for path in scripts for one in _SHOWN.finditer(path.read_text(encoding="utf-8"))]
    assert wrong == []
