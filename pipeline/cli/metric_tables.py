"""What `weir metrics` prints."""

from __future__ import annotations

from typing import Any, Final

from checkpoint.metrics import METRICS
from pipeline.cli.drawing import human_size, open_console, rate_of, say, share_of, table_of

_FLOW: Final = ("recordsIn", "recordsOut", "recordsInPerSecond", "recordsOutPerSecond", "recordsLag", "inFlightBytes")
_TIME: Final = ("busyMsPerSecond", "idleMsPerSecond", "backPressuredMsPerSecond", "sourceGateClosedMsPerSecond")


def print_metrics(found: dict[str, Any]) -> None:
    """
    Args:
        found: as `JobHandle.metrics()` has it.
    """
    console = open_console()
    subtasks: dict[str, dict[str, Any]] = found["subtasks"]
    if not subtasks:
        say(console, "no subtask has reported yet: the job is starting, or restarting")
        return
    main = table_of(
        "subtask", "in>", "out>", "in/s>", "out/s>", "lag>", "queued>", "busy>", "idle>", "blocked>", "gate>"
    )
    for name, values in sorted(subtasks.items()):
        lag = values.get("recordsLag")
        main.add_row(
            name,
            f"{values['recordsIn']:,.0f}",
            f"{values['recordsOut']:,.0f}",
            rate_of(values["recordsInPerSecond"]),
            rate_of(values["recordsOutPerSecond"]),
            "" if lag is None else f"{lag:,.0f}",
            human_size(round(values["inFlightBytes"])),
            *(share_of(values[metric]) for metric in _TIME),
        )
    console.print(main)
    others = table_of("metric", "subtask", "value>", "unit")
    for metric in METRICS:
        if metric.name not in (*_FLOW, *_TIME):
            for name, values in sorted(subtasks.items()):
                value = values.get(metric.name)
                of = value.items() if isinstance(value, dict) else [("", value)]
                for split, one in of:
                    if one:
                        shown = one if isinstance(one, str) else f"{one:,.0f}"
                        others.add_row(metric.name, f"{name} {split}".strip(), shown, metric.unit)
    if others.row_count:
        say(console, "")
        console.print(others)
