"""A subtask's process: what runs in one Spark partition, from the first connection to the last."""

from __future__ import annotations

import logging
import os
import pickle
import socket
import sys
from typing import Any

from checkpoint import failpoints
from checkpoint.errors import PermanentFailure
from checkpoint.storage.local_copies import LocalCopies
from checkpoint.storage.probe import Probe, answer_probe
from checkpoint.storage.storage import CheckpointStorage
from pipeline.logs import log_everything
from pipeline.runtime.auth import authenticate_client
from pipeline.runtime.deployment import Contact, JobSpec
from pipeline.runtime.network.network import Network
from pipeline.runtime.network.tcp_keepalive import fail_when_peer_is_gone
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.driver_link import DriverLink
from pipeline.runtime.subtask.gc_pauses import ShortCollections
from pipeline.runtime.subtask.gc_time import GcTime
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.task_builder import TaskBuilder
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.runtime.versions import versions
from pipeline.runtime.wire import ConnectionLost, ControlConnection

_LOG = logging.getLogger(f"weir.{__name__}")
_CONNECT_TIMEOUT = 20.0
_HANDSHAKE = 60.0
"""The driver may be busy; one that can't be reached is told sooner."""
_JOB_TIMEOUT = 120.0
SWITCH_INTERVAL = 0.001
"""Python's default of 5 ms would keep frames waiting for so long behind a busy task thread."""


def run_subtask(contact: Contact, secret: bytes) -> None:
    """Called by Spark in every partition of the job's barrier stage. Reports to the driver how it ended; raises
    nothing for what is reported, since Spark could only repeat it less clearly."""
    from pyspark import BarrierTaskContext

    # The driver alone restarts: should Spark try this task again, the driver of an attempt that is over is gone.
    context = BarrierTaskContext.get()
    log_everything("WARNING")
    # Spark may use this process again, for somebody else's job.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc_time, short_collections = GcTime(), ShortCollections()
    gc_time.start()
    short_collections.start()
    try:
        _run(contact, secret, context, gc_time)
    finally:
        short_collections.stop()
        gc_time.stop()
        sys.setswitchinterval(interval)
        failpoints.install(())


def _run(contact: Contact, secret: bytes, context: Any, gc_time: GcTime) -> None:
    connection = _connect(contact, secret, context.partitionId())
    spec = _job_of(connection)
    failpoints.install(spec.failpoints)
    mailbox = Mailbox()
    metrics = TaskMetrics()
    metrics.gc_seconds = lambda: gc_time.seconds
    where = f"in partition {context.partitionId()} on host {socket.gethostname()}"
    link = DriverLink(connection, mailbox, metrics, where, spec.limits)
    link.start()
    copies = None
    try:
        _check_versions(spec)
        storage = CheckpointStorage(spec.checkpoint_uri, spec.pipeline)
        if spec.checkpoints.local_recovery:
            copies = LocalCopies.open(os.environ, storage)
        if spec.probe is not None:
            answer_probe(storage, Probe.from_wire(spec.probe), str(context.partitionId()))
        network = Network(
            secret,
            _own_host(connection),
            on_wake=mailbox.wake,
            on_error=mailbox.post_failure,
            on_announcement=lambda channel, barrier: mailbox.post(mail.BarrierSeen(channel, barrier)),
            buffers=spec.buffers,
        )
        network.start()
    except BaseException as error:
        link.failed(error, permanent=spec.first_attempt)
        link.close()
        raise
    try:
        _say_hello(connection, context, network, copies)
        deployment = link.await_deployment()
        link.entered("is loading the pipeline's code")
        TaskBuilder(spec, deployment, mailbox, metrics, link, network, copies).run()
        link.closed()
        job_over = True
    except BaseException as error:
        link.failed(error)
        job_over = link.job_over
    finally:
        network.close(0)
        if copies is not None and job_over:
            copies.remove()  # before the driver sees this process leave: the next start may come at once
        link.close()


def _connect(contact: Contact, secret: bytes, partition: int) -> ControlConnection:
    sock = socket.create_connection(contact.driver, _CONNECT_TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    fail_when_peer_is_gone(sock, contact.vanished)
    authenticate_client(sock, secret, f"in partition {partition}", _HANDSHAKE)
    return ControlConnection(sock)


def _job_of(connection: ControlConnection) -> JobSpec:
    """The first thing that the driver says; both sides have shown that they know the attempt's secret."""
    message = connection.receive(_JOB_TIMEOUT)
    if message is None or message["type"] != "job":
        connection.close()
        raise ConnectionLost(f"the driver did not say within {_JOB_TIMEOUT:g} s which job this is")
    spec: JobSpec = pickle.loads(message["spec"])
    return spec


def _own_host(connection: ControlConnection) -> str:
    """The address that this host has towards the driver: the one its peers are most likely to reach, too."""
    return connection.local_host


def _check_versions(spec: JobSpec) -> None:
    mine = versions()
    for name, wanted in spec.versions.items():
        if mine[name] != wanted:
            raise PermanentFailure(
                f"host {socket.gethostname()} has {name} {mine[name]} ({sys.executable}) and the driver {wanted}; "
                f"install the same {name} on all hosts, or point PYSPARK_PYTHON to it"
            )


def _say_hello(connection: ControlConnection, context: Any, network: Network, copies: LocalCopies | None) -> None:
    host, port = network.address
    name = socket.gethostname()
    connection.send(
        "hello",
        partition=context.partitionId(),
        host=name,
        pid=os.getpid(),
        address=[host, port],
        folder="" if copies is None else f"{name}:{copies.folder}",
        copies=[] if copies is None else copies.held(),
    )
