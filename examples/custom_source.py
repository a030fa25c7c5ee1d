"""A source of one's own: the lines of all files in a folder, each file a split that one subtask reads.

    weir run examples/custom_source.py                   # how long the lines of this folder's files are
    WEIR_EXAMPLE_FOLDER=/var/log/apt weir run examples/custom_source.py

What makes it exact is `snapshot`: it tells where each file must be read on after a restart, and leaves out what was
polled and has not left the source yet.
"""

import os
from pathlib import Path

from pipeline import KeyedOperator, Pipeline, ReducingState, ValueState
from sinks import PrintSink
from sources import END, Source, SourceReader


class LinesSource(Source):
    bounded = True

    def __init__(self, folder):
        self.folder = Path(folder)

    def validate(self):
        if not self.folder.is_dir():
            raise ValueError(f"there is no folder {self.folder}")

    def create_reader(self, ctx):
        return LinesReader(self.folder, ctx)


class LinesReader(SourceReader):
    def __init__(self, folder, ctx):
        # After a restart at another parallelism several old subtasks' positions come here, or none.
        self.positions = {name: at for state in ctx.restored or [] for name, at in state.items()}
        names = sorted(path.name for path in folder.iterdir() if path.is_file())
        self.open = {name: (folder / name).open("rb") for name in names[ctx.subtask :: ctx.parallelism]}
        for name, file in self.open.items():
            file.seek(self.positions.get(name, 0))
        self.left = list(self.open)
        self.polled = []
        self.paused = False

    def poll(self, max_records, timeout):
        # Everything polled before has left the source.
        self.positions.update((name, at) for name, at in self.polled)
        self.polled = []
        if self.paused:
            return None
        while self.left:
            name = self.left[0]
            lines = []
            while len(lines) < max_records and (line := self.open[name].readline()):
                lines.append({"file": name, "length": len(line.decode(errors="replace").rstrip("\n"))})
                self.polled.append((name, self.open[name].tell()))
            if lines:
                return lines
            self.left.pop(0)
        return END

    def snapshot(self, checkpoint_id, emitted):
        return {**{name: self.positions.get(name, 0) for name in self.open}, **dict(self.polled[:emitted])}

    def pause(self):
        self.paused = True

    def resume(self):
        self.paused = False

    def close(self):
        for file in self.open.values():
            file.close()


class Longest(KeyedOperator):
    """Tells a file's longest line whenever it sees a longer one."""

    lines = ValueState(default=0)
    longest = ReducingState(max, default=0)

    def process(self, line, ctx):
        self.lines.value += 1
        if line["length"] > self.longest.value:
            self.longest.add(line["length"])
            yield f"{ctx.key}: line {self.lines.value} has {line['length']} characters"


p = Pipeline("longest-lines", parallelism=2)
(
    p.source("lines", LinesSource(os.environ.get("WEIR_EXAMPLE_FOLDER", Path(__file__).parent)))
    .key_by("file")
    .process("longest", Longest())
    .sink("out", PrintSink())
)
