"""The tool behind `make mutate` finds the kinds of changes that it is for, and nothing that changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutants import mutants_of, sample
from trial import nearest_tests

_MODULE = '''
LIMIT: int | None = 3

class Kind(IntEnum):
    DATA = 1

class Clock(Protocol):
    def start(self, soon: bool = False) -> bool: ...

@dataclass(frozen=True)
class Plain:
    plan: bytes = field(repr=False, init=True)

    def all(self, *, whole: bytes) -> None:
        pass

    def __repr__(self) -> str:
        return f"Plain {1 + 1}"

def f(numbers: list[int], *, most: int | None = None) -> bool:
    """Docs."""
    failpoints.hit("before")
    hit("after")
    state.code = error.args[0].code()
    log.info("has %d", len(numbers) + 1)
    state.seen = len(numbers) + 1
    state.pairs = dict(zip(numbers, numbers, strict=True))
    for number in numbers:
        if number < 3 and all(numbers):
            continue
    state.close()
    sock.setsockopt(IPPROTO_TCP, socket.TCP_NODELAY, 1)
    error.__cause__ = state.failure
    if not numbers:
        raise ValueError(f"none of {len(numbers) - 1}: {numbers[0]}", LIMIT - 4)
    return not most
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "part.py").write_text(_MODULE)
    return tmp_path


def test_what_is_found(project: Path) -> None:
    changes = {mutant.diff(project).splitlines()[-1][1:].strip() for mutant in mutants_of(project, "room/part.py")}
    assert changes == {
        "state.seen = len(numbers) - 1",
        "state.seen = len(numbers) + 2",
        "state.seen = len(numbers) + 0",
        "pass",
        "for number in []:",
        "if number <= 3 and all(numbers):",
        "if number < 4 and all(numbers):",
        "if number < 2 and all(numbers):",
        "if number < 3 or all(numbers):",
        "if not number < 3 and all(numbers):",
        "if number < 3 and any(numbers):",
        "break",
        "return  most",
        "if  numbers:",
        "if not not numbers:",
        'raise ValueError(f"none of {len(numbers) - 1}: {numbers[0]}", LIMIT + 4)',
        'raise ValueError(f"none of {len(numbers) - 1}: {numbers[0]}", LIMIT - 5)',
        'raise ValueError(f"none of {len(numbers) - 1}: {numbers[0]}", LIMIT - 3)',
    }


def test_a_seed_repeats_a_sample(project: Path) -> None:
    assert sample(project, ["room"], 5, 1) == sample(project, ["room"], 5, 1)
    assert sample(project, ["room"], 5, 1) != sample(project, ["room"], 5, 2)
    assert len(set(sample(project, ["room"], 1000, 1))) == len(list(mutants_of(project, "room/part.py")))


def test_what_is_no_python_is_not_drawn(tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text("def f(x: int) -> int:\n    if y := x:\n        return y\n    return not x\n")
    assert [mutant.line for mutant in sample(tmp_path, ["part.py"], 9, 1)] == [4]


def test_the_nearest_tests_come_first(tmp_path: Path) -> None:
    for name, text in {
        "tests/room/test_part.py": "",
        "tests/room/test_other.py": "",
        "tests/elsewhere/test_whole.py": "from room.part import f",
        "tests/elsewhere/test_more.py": "from room import part",
        "tests/pipelines/test_jobs.py": "from room.part import f",
        "tests/pipeline/runtime/test_a_job_without_spark.py": "",
        "tests/elsewhere/test_a_job.py": "from room.part import f\ndef test_it(spark: Any) -> None: ...",
        "tests/simulation/test_seeds.py": "",
        "above/user.py": "from room.part import f",
        "tests/above/test_user.py": "",
        "tests/above/test_stranger.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(nearest_tests(tmp_path, "room/part.py")) == [
        ("tests/room/test_part.py",),
        ("tests/elsewhere/test_more.py", "tests/elsewhere/test_whole.py"),
        ("tests/simulation/test_seeds.py",),
        ("tests/room/test_other.py",),
        ("tests/above/test_user.py",),
    ]
    (tmp_path / "pipeline" / "runtime" / "driver").mkdir(parents=True)
    (tmp_path / "pipeline" / "runtime" / "driver" / "attempt.py").touch()
    assert list(nearest_tests(tmp_path, "pipeline/runtime/driver/attempt.py")) == [
        ("tests/simulation/test_seeds.py",),
        ("tests/pipeline/runtime/test_a_job_without_spark.py",),
    ]
