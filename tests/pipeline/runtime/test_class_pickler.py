"""Classes of a script that workers can't import: they come with the plan, and are the classes of the values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

SCRIPT = """
from __future__ import annotations
import enum, sys
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple, TypedDict
import msgspec, pydantic
from checkpoint.codec import encode, register_pickle
from pipeline import Pipeline
from pipeline.runtime.packing import pack_plan
from pipeline.testing import TestingSource

class Level(enum.Enum):
    LOW = 1

class Line(msgspec.Struct, tag="line", rename="camel", kw_only=True):
    my_price: Decimal
    level: Level = Level.LOW
    next: Line | None = None
    tags: list[str] = []

    def __post_init__(self):
        assert self.kind() is Line

    def kind(self):
        return Line

class More(Line):
    extra: int = 3

@dataclass(frozen=True, slots=True)
class Order:
    id: int
    lines: list[Line]
    at: datetime | None = None

class Model(pydantic.BaseModel):
    a: int

class Pair(NamedTuple):
    x: int

@dataclass
class Payment:
    order: int

class Row(TypedDict):
    payment: Payment

@register_pickle
class Money:
    def __init__(self, amount):
        self.amount = amount

def step(value):
    return Order(1, [value])

line = Line(my_price=Decimal("1.0"), next=More(my_price=Decimal(2)))
row = msgspec.convert({"payment": {"order": 1}}, Row)  # as a source that looks at its `value_type`
pair = msgspec.convert([2], Pair)
values = [Order(1, [line]), Model(a=1), pair, Level.LOW, Money(5), row["payment"]]
p = Pipeline("job")
p.source("in", TestingSource()).map(step, id="step")
p.source("rows", TestingSource()).map(lambda row: (msgspec.convert(row, Row), Payment, Pair), id="read")
packed = pack_plan(p.plan())
if __name__ == "__main__":
    open(sys.argv[1], "wb").write(packed)
    open(sys.argv[2], "wb").write(encode(values))
"""

WORKER = """
import sys
import msgspec
from checkpoint.codec import UnfitClass, classes, decode, encode
from pipeline.runtime.packing import unpack_plan

plan, values = (open(path, "rb").read() for path in sys.argv[1:])
try:
    decode(values)
except UnfitClass as error:
    assert "orders:" in str(error)
else:
    raise AssertionError("the classes are known without the plan")
for _ in range(2):  # a worker may run a second attempt
    (_, step), (_, read) = (vertex.steps for vertex in unpack_plan(plan).vertices)
    order, model, pair, level, money, payment = found = decode(values)
    assert encode(found) == values
    assert type(step.payload(order.lines[0])) is type(order)
    assert type(order.lines[0]).__struct_config__.tag == "line"
    assert type(order.lines[0].next).__mro__[1] is type(order.lines[0]) is order.lines[0].kind()
    assert order.lines[0].level is level and money.amount == 5
    assert read.payload({"payment": {"order": 1}}) == ({"payment": payment}, type(payment), type(pair))
    given = {"id": 1, "lines": [{"type": "line", "myPrice": "1.5"}], "at": "2020-01-01T00:00:00"}
    made = msgspec.convert(given, type(order))
    assert type(made.lines[0]) is type(order.lines[0]) and made.lines[0].tags == []
print("done")
"""


def test_values_of_a_scripts_classes_are_read_by_a_worker_that_lacks_the_script(tmp_path: Path) -> None:
    folder = tmp_path / "script"
    folder.mkdir()
    (folder / "orders.py").write_text(SCRIPT)
    paths = [str(tmp_path / "plan"), str(tmp_path / "values")]

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments, *paths]
        done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(str(folder / "orders.py"))
    assert run("-c", WORKER) == "done\n"
