"""How the user's code gets into the workers, and what is said when it can't."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark import cloudpickle

from pipeline import KeyedOperator, Operator, Pipeline, PipelineError, ValueState
from pipeline.runtime.packing import pack_plan, unpack_plan
from pipeline.testing import TestingSink, TestingSource


class Holds(Operator):
    def __init__(self, thing: Any) -> None:
        self.fine = [1, 2]
        self.thing = thing

    def process(self, value: Any, ctx: Any) -> Any:
        yield value


class Count(KeyedOperator):
    count = ValueState(default=0)

    def process(self, value: Any, ctx: Any) -> Any:
        self.count.value += 1
        yield self.count.value


def job() -> tuple[Pipeline, Any]:
    p = Pipeline("job")
    return p, p.source("in", TestingSource([1, 2]))


def test_a_plan_comes_back_as_it_was() -> None:
    p, stream = job()
    stream.map(lambda v: v + 1, id="more").key_by("k").process("count", Count()).sink("out", TestingSink())
    plan = unpack_plan(pack_plan(p.plan()))
    assert [(v.name, v.parallelism, v.first_subtask) for v in plan.vertices] == [
        ("in → more", 1, 0),
        ("count → out", 1, 1),
    ]
    assert plan.vertices[0].steps[1].payload(1) == 2


def test_a_module_that_is_no_python_file_is_looked_up_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extension module, say: it has no source that could travel."""
    module = ModuleType("compiled")
    module.__file__ = "/home/user/compiled.so"
    exec("def more(value): return value + 1", module.__dict__)
    monkeypatch.setitem(sys.modules, "compiled", module)
    p, stream = job()
    stream.map(module.more, id="more").sink("out", TestingSink())
    assert unpack_plan(pack_plan(p.plan())).vertices[0].steps[1].payload is module.more


def test_an_operator_that_cannot_travel_is_named_with_the_attribute_at_fault() -> None:
    p, stream = job()
    stream.process("enrich", Holds(threading.Lock()))
    with pytest.raises(PipelineError) as caught:
        pack_plan(p.plan())
    message = str(caught.value)
    assert "step 'enrich': Holds can't be sent to the workers: its attribute 'thing' (lock)" in message
    assert "Make clients, files, locks and threads in open()" in message


def test_a_function_that_cannot_travel_is_named() -> None:
    lock = threading.Lock()
    p, stream = job()
    stream.map(lambda v: (lock, v), id="locked")
    with pytest.raises(PipelineError, match="step 'locked': function can't be sent to the workers"):
        pack_plan(p.plan())


@pytest.mark.parametrize("spread", ["key_by", "partition_custom"])
def test_a_key_function_or_partitioner_that_cannot_travel_is_named_by_the_step_behind_it(spread: str) -> None:
    lock = threading.Lock()
    p, stream = job()
    getattr(stream, spread)(lambda *v: lock).process("behind", Holds(1))
    with pytest.raises(PipelineError, match="the key or partitioner before step 'behind' can't be sent"):
        pack_plan(p.plan())


def test_packing_leaves_no_trace_in_the_driver() -> None:
    from pyspark import cloudpickle

    p, stream = job()
    stream.process("enrich", Holds(threading.Lock()))
    before = cloudpickle.list_registry_pickle_by_value()
    with pytest.raises(PipelineError):
        pack_plan(p.plan())
    assert cloudpickle.list_registry_pickle_by_value() == before


HELPERS = """
PREFIX = "from the helper: "

def label(value):
    return PREFIX + str(value)

class Base:
    def greet(self, value):
        return label(value)
"""

STEPS = """
from pipeline import Operator
import helpers

class Greet(Operator, helpers.Base):
    def process(self, value, ctx):
        yield self.greet(value)
"""

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import helpers, steps
from pipeline import Pipeline
from pipeline.runtime.packing import pack_plan
from pipeline.testing import TestingSource

def mine(value):
    return helpers.label(value) + "!"

p = Pipeline("job")
p.source("in", TestingSource()).process("greet", steps.Greet()).map(mine, id="mine")
open(sys.argv[2], "wb").write(pack_plan(p.plan()))
"""


def test_code_of_a_script_and_of_modules_beside_it_travels_by_value(tmp_path: Path) -> None:
    """A worker has neither the script nor its folder on its path."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    for name, text in (("helpers", HELPERS), ("steps", STEPS), ("job", SCRIPT)):
        (folder / f"{name}.py").write_text(text)
    packed = tmp_path / "plan"
    subprocess.run([sys.executable, folder / "job.py", folder, packed], check=True, cwd=tmp_path, timeout=300)
    _, greet, mine = unpack_plan(packed.read_bytes()).vertices[0].steps
    assert list(greet.payload.process(1, None)) == ["from the helper: 1"]
    assert mine.payload(2) == "from the helper: 2!"
    assert "helpers" not in sys.modules


def test_installed_code_travels_by_name() -> None:
    p, stream = job()
    stream.sink("out", TestingSink())
    assert len(pack_plan(p.plan())) < 5000


class Meets(Holds):
    """Finds out whether another one is being pickled at the same time."""

    meeting = threading.Barrier(2)
    met = False

    def __reduce__(self) -> Any:
        try:
            self.meeting.wait(1.0)
            Meets.met = True
        except threading.BrokenBarrierError:
            pass
        return Holds, (1,)


def test_jobs_that_start_at_once_do_not_disturb_each_other() -> None:
    """What is pickled by value is settled for the whole process, so plans are packed one at a time."""
    plans = []
    for _ in range(2):
        p, stream = job()
        stream.process("meet", Meets(1)).sink("out", TestingSink())
        plans.append(p.plan())
    with ThreadPoolExecutor(2) as pool:
        for packed in pool.map(pack_plan, plans):
            assert unpack_plan(packed).vertices[0].steps[1].payload.thing == 1
    assert not Meets.met
    assert cloudpickle.list_registry_pickle_by_value() == set()


def test_what_the_user_has_registered_stays_registered() -> None:
    module = sys.modules[__name__]
    p, stream = job()
    stream.map(lambda v: v).sink("out", TestingSink())
    cloudpickle.register_pickle_by_value(module)
    try:
        pack_plan(p.plan())
        assert cloudpickle.list_registry_pickle_by_value() == {__name__}
    finally:
        cloudpickle.unregister_pickle_by_value(module)
