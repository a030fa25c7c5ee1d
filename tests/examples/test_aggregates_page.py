"""The examples of docs/aggregates.md, as they stand there."""

import ast
import re
from typing import Final

import pytest
from page_code import DOCS, blocks_of, run_block

import pipeline
from pipeline import Pipeline
from pipeline.aggregates import Aggregation
from pipeline.plan import plan
from pipeline.runtime.packing import pack_plan
from sources import SequenceSource

PAGE: Final = (DOCS / "aggregates.md").read_text()
BLOCKS: Final = blocks_of("aggregates.md")
RECORDS: Final = next(ast.literal_eval(block) for block in BLOCKS if block.lstrip().startswith("["))
TABLE: Final = re.findall(r"^\| `(\w+\(.*?\))` \| `(.*?)` \| .*? \| `(.*?)` \| .* \|$", PAGE, re.M)
NAMES: Final = vars(pipeline)


def aggregated(aggregates):
    aggregation = Aggregation(aggregates)
    accumulators = aggregation.create()
    nothing = aggregation.result(accumulators)
    for i, record in enumerate(RECORDS):
        accumulators = aggregation.add(accumulators, record, 1000 * i)
    return aggregation.result(accumulators), nothing


@pytest.mark.parametrize(("call", "gives", "of_none"), TABLE, ids=[row[0] for row in TABLE])
def test_the_table_says_what_each_gives(call, gives, of_none):
    result, nothing = aggregated({"r": eval(call, dict(NAMES))})
    expected = ast.literal_eval(gives)
    if call.startswith("Quantiles"):
        assert result["r"] == pytest.approx(expected, abs=0.0001)
    else:
        assert (type(result["r"]), result["r"]) == (type(expected), expected)
    assert nothing["r"] == ast.literal_eval(of_none)


def test_the_table_has_all():
    kinds = {name for name, one in NAMES.items() if isinstance(one, type) and issubclass(one, pipeline.Aggregate)}
    assert {call.partition("(")[0] for call, _, _ in TABLE} == kinds - {"Aggregate", "Fold"}


def test_the_code_runs_and_gives_what_it_says():
    job = Pipeline("page")
    names = {"orders": job.source("orders", SequenceSource(1))}
    blocks = [block for block in BLOCKS if not block.lstrip().startswith(("[", "{"))]
    assert len(blocks) == 4
    for block in blocks:
        run_block("aggregates.md", block, names)
    assert pack_plan(plan(job._graph, 128))
    steps = {step.id: step.payload for step in job._graph.steps}
    shown = next(ast.literal_eval(block) for block in BLOCKS if block.lstrip().startswith("{"))
    assert {"key": "ann", **aggregated(steps["aggregate-1"]._aggregates)[0]} == shown
    for step in ("aggregate-2", "aggregate-3"):
        assert aggregated(steps[step]._aggregates)[0] == {"product": "tea"}
