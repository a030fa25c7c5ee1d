"""A two-phase sink of one's own: rows and a marker go to PostgreSQL in one transaction, so that they are there once.

    psql "host=localhost dbname=shop" -c "CREATE TABLE orders (id bigint, customer text)"
    export WEIR_EXAMPLE_POSTGRES="host=localhost dbname=shop"
    weir run examples/postgres_sink.py --set checkpoints.uri=/tmp/orders

The rows of an epoch are staged in the checkpoint storage. Once their checkpoint is complete, one short transaction
inserts them and moves the marker of their writer; a commit that comes again, in whatever process, finds the marker
behind its rows and leaves them out. Needs psycopg 3.
"""

import os
import uuid

import psycopg
from psycopg import sql

from checkpoint.codec import decode, encode
from pipeline import Pipeline
from sinks import Committer, PermanentFailure, Sink, SinkWriter
from sources import SequenceSource

MARKERS = """
CREATE TABLE IF NOT EXISTS weir_markers (
    sink text, owner int, lineage text NOT NULL, checkpoint bigint NOT NULL,
    epoch bigint NOT NULL, segment int NOT NULL, writer text NOT NULL, PRIMARY KEY (sink, owner)
)
"""


class PostgresSink(Sink):
    needs_checkpoints = True

    def __init__(self, conninfo, table, columns):
        self.conninfo = conninfo
        self.table = table
        self.columns = list(columns)

    def validate(self):
        with psycopg.connect(self.conninfo) as connection:
            if connection.execute("SELECT to_regclass(%s)", [self.table]).fetchone() == (None,):
                raise ValueError(f"there is no table {self.table}; create it with the columns {self.columns}")

    def create_writer(self, ctx):
        return StagingWriter(self.columns, ctx)

    def create_committer(self, ctx):
        return PostgresCommitter(self, ctx)


class StagingWriter(SinkWriter):
    def __init__(self, columns, ctx):
        self.columns = columns
        self.ctx = ctx
        self.rows = []

    def write_batch(self, batch):
        # A record without one of the columns raises here, while it is in progress.
        self.rows += [[record[column] for column in self.columns] for record in batch.values]

    def prepare_commit(self, checkpoint_id):
        if not self.rows:
            return []
        file = self.ctx.staging.create(f"{self.ctx.sink_id}-{self.ctx.subtask}")
        file.write(encode(self.rows))  # with their types: JSON would make null of a NaN, and has no dates
        self.rows = []
        return [(None, [file.close()])]


class PostgresCommitter(Committer):
    def __init__(self, sink, ctx):
        self.sink = sink
        self.ctx = ctx
        self.key = (f"{ctx.pipeline}/{ctx.sink_id}", ctx.writer)
        self.writer = uuid.uuid4().hex
        """Whoever opened last: a process that was left behind finds another one's in the marker."""
        self.marker = None
        """Checkpoint, epoch and segment that are committed."""
        self.connection = psycopg.connect(sink.conninfo, autocommit=True)

    def open(self, restored):
        with self.connection.transaction():
            # Two that create the table at once would get in each other's way.
            self.connection.execute("SELECT pg_advisory_xact_lock(hashtext('weir_markers'))")
            self.connection.execute(MARKERS)
        with self.connection.transaction():
            found = self.locked_marker()
            self.ctx.check_owner()
            if found is None:
                if self.ctx.restored_state is not None:
                    raise PermanentFailure(
                        f"the checkpoint says that rows of {self.key} are committed, but weir_markers has no marker of "
                        "them: the database is another one, or was emptied"
                    )
                # Larger than nothing: the first segment of epoch 1 is behind it.
                self.marker = (self.ctx.restored_checkpoint, 0, -1)
            else:
                lineage, *position, _ = found
                self.check_lineage(lineage, position[0])
                self.marker = tuple(position)
            self.store(self.marker)
        return [each for each in restored if (each.name.epoch, each.name.index) > self.marker[1:]]

    def check_lineage(self, lineage, checkpoint):
        """Whether rows that are committed fit the checkpoint that is restored."""
        ctx = self.ctx
        if ctx.rewind or ctx.ignore_earlier_output:
            return
        restored = ctx.restored_checkpoint
        if lineage == ctx.lineage.id and checkpoint <= restored:
            return
        if ctx.lineage.parent is not None and lineage == ctx.lineage.parent[0] and checkpoint <= ctx.lineage.parent[1]:
            return
        raise PermanentFailure(
            f"rows of {self.key} are committed up to checkpoint {checkpoint} of the history {lineage}, which is not "
            f"in front of checkpoint {restored} of {ctx.lineage.id}: they would come twice. Restore the newest "
            'checkpoint, or accept that with rewind (or restore="none")'
        )

    def commit(self, checkpoint_id, committables):
        with self.connection.transaction():
            found = self.locked_marker()
            if found is None or found[-1] != self.writer:
                raise RuntimeError(f"another process commits the rows of {self.key} now")
            self.ctx.check_owner()
            checkpoint, *last = self.marker
            for committable in committables:
                name = [committable.name.epoch, committable.name.index]
                if name > last:
                    self.insert(committable)
                    last = name
            marker = (max(checkpoint, checkpoint_id), *last)
            self.store(marker)
        self.marker = marker

    def insert(self, committable):
        columns = sql.SQL(", ").join(map(sql.Identifier, self.sink.columns))
        into = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(self.sink.table), columns)
        with self.connection.cursor() as cursor, cursor.copy(into) as copy:
            for file in committable.files:
                for row in decode(self.ctx.staging.read(file)):
                    copy.write_row(row)

    def locked_marker(self):
        """Lineage, checkpoint, epoch, segment, writer; whoever else wants it waits for the end of this transaction."""
        return self.connection.execute(
            "SELECT lineage, checkpoint, epoch, segment, writer FROM weir_markers WHERE sink = %s AND owner = %s "
            "FOR UPDATE",
            self.key,
        ).fetchone()

    def store(self, marker):
        self.connection.execute(
            "INSERT INTO weir_markers VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (sink, owner) DO UPDATE SET "
            "lineage = excluded.lineage, checkpoint = excluded.checkpoint, epoch = excluded.epoch, "
            "segment = excluded.segment, writer = excluded.writer",
            [*self.key, self.ctx.lineage.id, *marker, self.writer],
        )

    def highest_checkpoint(self):
        return self.marker[0]

    def snapshot(self):
        return list(self.marker)

    def close(self):
        self.connection.close()


p = Pipeline("orders-to-postgres", parallelism=2)
(
    p.source("orders", SequenceSource(n=int(os.environ.get("WEIR_EXAMPLE_ORDERS", "10000")), partitions=4))
    .map(lambda order: {"id": order["id"], "customer": f"c{order['id'] % 100}"})
    .sink("rows", PostgresSink(os.environ.get("WEIR_EXAMPLE_POSTGRES", ""), "orders", ["id", "customer"]))
)
