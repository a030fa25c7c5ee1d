"""One attempt: it restores a checkpoint, and its subtasks, channels and driver act until it ends or crashes."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from checkpoint.elements import ChannelName
from checkpoint.kinds import CheckpointKind
from checkpoint.storage.naming import CheckpointRef
from simulated.channel import Channel
from simulated.graph import Graph, Kind
from simulated.master import Master
from simulated.operator import Operator
from simulated.options import Alignment, Options
from simulated.output import OutputSystem
from simulated.restoring import Restoring, needs_drain
from simulated.scheduler import Actor, Scheduler
from simulated.sink import Sink
from simulated.source import Source
from simulated.storage import Storage
from simulated.subtask import OutputEdge, Subtask, shares
from sinks.sink import Lineage


class Attempt:
    def __init__(
        self,
        graph: Graph,
        options: Options,
        scheduler: Scheduler,
        storage: Storage,
        output: OutputSystem,
        parallelism: dict[str, int],
        happened: Callable[[str], None],
    ) -> None:
        """`happened` is told of moments at which a crash is of interest; it may raise."""
        self.graph = graph
        self.options = options
        self.scheduler = scheduler
        self.storage = storage
        self.output = output
        self.parallelism = parallelism
        self.happened = happened
        self.edges = {edge.name: edge for edge in graph.edges}
        self.lineage = Lineage("lineage")
        self.lost = options.lost
        self.failing = options.storage_failures
        self._alignments: dict[int, Alignment] = {}
        self._at_start: list[Callable[[], None]] = []

        good = storage.good()
        if scheduler.rng.random() < 0.5:  # the user has taken the savepoints away that nothing was restored from
            built_on = storage.record.restored if storage.record is not None else None
            ordinary = [ref for ref in good if storage.checkpoints[ref].kind is not CheckpointKind.SAVEPOINT]
            good = [ref for ref in good if ref in ordinary or ref == built_on]
        ref = good[-1] if good else None
        self.ownership = storage.take_ownership()
        storage.restore(self.ownership, ref)
        checkpoint = storage.checkpoints[ref] if ref is not None else None
        self.restored_id = ref.id if ref is not None else 0
        self.same_parallelisms = checkpoint is not None and checkpoint.parallelism == parallelism
        self.drains = checkpoint is not None and needs_drain(graph, checkpoint, parallelism)
        if "sources_do_not_wait_for_the_drain" in options.faults:
            self.drains = False
        scheduler.log("attempt", self.ownership.attempt, "restores", ref, parallelism, "drains" if self.drains else "")

        restoring = Restoring(graph, checkpoint, parallelism, options)
        self.subtasks: list[Subtask] = []
        self.channels: list[Channel] = []
        self._make_subtasks(restoring)
        self._make_channels()
        for subtask in self.subtasks:
            if isinstance(subtask, Operator):
                subtask.connected()
        self.master = Master(self, self._retained(good))
        for start in self._at_start:
            start()
        for subtask in self.subtasks:
            if isinstance(subtask, Operator):
                subtask.start()

    # -- building -------------------------------------------------------------------------------------------------

    def _retained(self, good: list[CheckpointRef]) -> list[CheckpointRef]:
        ordinary = [ref for ref in good if self.storage.checkpoints[ref].kind is not CheckpointKind.SAVEPOINT]
        return [ref for ref in ordinary if ref.id <= self.restored_id]

    def _make_subtasks(self, restoring: Restoring) -> None:
        for step in self.graph.steps.values():
            for index in range(self.parallelism[step.id]):
                number = len(self.subtasks)
                if step.kind is Kind.SOURCE:
                    self.subtasks.append(Source(self, step, index, number, restoring.offsets(step)))
                    continue
                kind = Sink if step.kind is Kind.SINK else Operator
                state, entries = restoring.state(step, index), restoring.entries(step, index)
                operator = kind(self, step, index, number, state, entries)
                self.subtasks.append(operator)
                told, holders = restoring.watermarks(step), restoring.holders(step, index)
                self.at_start(partial(operator.restore_event_time, told, holders))

    def _make_channels(self) -> None:
        of = {(subtask.step.id, subtask.index): subtask for subtask in self.subtasks}
        for edge in self.graph.edges:
            ups, downs = self.parallelism[edge.name.upstream], self.parallelism[edge.name.downstream]
            for up in range(ups):
                upstream = of[edge.name.upstream, up]
                its = shares(edge, up, ups, downs)
                output = OutputEdge(edge, {}, its)
                upstream.outputs.append(output)
                for down in its:
                    name = ChannelName(edge.name, up, down)
                    channel = Channel(name, edge, self.scheduler, self.options.input_room)
                    channel.upstream, channel.downstream = upstream, of[edge.name.downstream, down]
                    channel.number = len(channel.downstream.inputs)
                    channel.downstream.inputs.append(channel)
                    upstream.output_channels.append(channel)
                    output.channels[down] = channel
                    self.channels.append(channel)

    def at_start(self, action: Callable[[], None]) -> None:
        """Do it once channels are there."""
        self._at_start.append(action)

    def actors(self) -> list[Actor]:
        found = [Actor("storage", self.storage.step, self.storage.deadline)]
        for channel in self.channels:
            found += [Actor(f"send {channel.name}", channel.send), Actor(f"arrive {channel.name}", channel.arrive)]
        master = self.master
        found += [
            Actor("coordinator", master.tick, master.deadline),
            Actor("heartbeat", master.beat),
            Actor("inbox", master.read_inbox),
            Actor("deleter", master.delete),
        ]
        if self.options.savepoints:
            found.append(Actor("user", master.request_savepoint))
        for subtask in self.subtasks:
            name = subtask.name
            found += [
                Actor(f"work {name}", subtask.work),
                Actor(f"mail {name}", subtask.read_mail),
                Actor(f"linger {name}", subtask.seal),
                Actor(f"turn {name}", subtask.turn_due, subtask.turn_deadline),
                Actor(f"report {name}", lambda number=subtask.number: master.receive(number)),  # type: ignore[misc]
            ]
            if isinstance(subtask, Operator):
                found += [
                    Actor(f"announce {name}", subtask.read_announcement),
                    Actor(f"tick {name}", subtask.tick, subtask.deadline),
                ]
            if isinstance(subtask, Sink):
                found.append(Actor(f"commit {name}", subtask.commit_step))
        return found

    def reached_from_sources(self) -> dict[int, frozenset[int]]:
        """As `pipeline.runtime.reach` has it for a plan."""
        targets = {s.number: {channel.downstream.number for channel in s.output_channels} for s in self.subtasks}
        found: dict[int, frozenset[int]] = {}
        for subtask in self.subtasks:
            if isinstance(subtask, Source):
                reached: set[int] = set()
                new = set(targets[subtask.number])
                while new:
                    reached |= new
                    new = {further for number in new for further in targets[number]} - reached
                found[subtask.number] = frozenset(reached or {subtask.number})
        return found

    # -- what subtasks use ----------------------------------------------------------------------------------------

    def alignment(self, n: int, kind: CheckpointKind) -> Alignment:
        """Of a checkpoint, the same for all sources."""
        if not self.options.exactly_once:
            return None
        if kind is CheckpointKind.SAVEPOINT:
            return self.options.savepoint_alignment
        if n not in self._alignments:
            choices = self.options.alignments
            self._alignments[n] = choices[0] if len(choices) == 1 else random.Random(n).choice(choices)
        return self._alignments[n]

    def report(self, subtask: Subtask, letter: tuple[Any, ...]) -> None:
        self.master.report(subtask, letter)

    def write(self, subtask: Subtask, n: int) -> None:
        """The asynchronous part of a snapshot."""
        self.storage.write(self.options.storage_seconds, self.failing, lambda succeeded: subtask.written(n, succeeded))

    def release_early(self, subtask: Subtask) -> None:
        """A fault: new epochs are committed although restored ones of other writers are not."""
        assert isinstance(subtask, Sink)
        assert subtask.log is not None
        subtask.log._new_released = True

    def calm(self) -> None:
        """Nothing goes wrong any more."""
        self.lost = self.failing = 0.0

    @property
    def finished(self) -> bool:
        return all(subtask.finished for subtask in self.subtasks if isinstance(subtask, Sink))
