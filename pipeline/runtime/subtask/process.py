"""A subtask's process: what runs in one Spark partition, from the first connection to the last."""

from __future__ import annotations

import logging
import os
import pickle
import socket
import sys
from collections.abc import Callable, Mapping
from functools import partial

from checkpoint import failpoints
from checkpoint.errors import PermanentFailure
from checkpoint.storage.local_copies import LocalCopies
from checkpoint.storage.probe import Probe, answer_probe
from checkpoint.storage.storage import CheckpointStorage
from pipeline.logs import FORMAT_VARIABLE, log_everything
from pipeline.runtime import pandas_late
from pipeline.runtime.auth import authenticate_client
from pipeline.runtime.deployment import Contact, JobSpec
from pipeline.runtime.encryption import Encryption
from pipeline.runtime.message_connection import MessageConnection
from pipeline.runtime.network.network import Network
from pipeline.runtime.network.sockets import SOCKETS, Sockets
from pipeline.runtime.network.tcp_keepalive import fail_when_peer_is_gone
from pipeline.runtime.protocol import TO_SUBTASK, Hello, Job, ToDriver, ToSubtask
from pipeline.runtime.subtask import mail
from pipeline.runtime.subtask.driver_link import DriverConnection, DriverLink
from pipeline.runtime.subtask.gc_pauses import ShortCollections
from pipeline.runtime.subtask.mailbox import Mailbox
from pipeline.runtime.subtask.task_builder import TaskBuilder
from pipeline.runtime.subtask.task_metrics import TaskMetrics
from pipeline.runtime.system import SYSTEM, System
from pipeline.runtime.versions import versions
from pipeline.runtime.wire import ConnectionLost, ControlConnection

_LOG = logging.getLogger(f"weir.{__name__}")
_CONNECT_TIMEOUT = 20.0
_HANDSHAKE = 60.0
"""The driver may be busy; one that can't be reached is told sooner."""
_JOB_TIMEOUT = 120.0
SWITCH_INTERVAL = 0.001
"""Python's default of 5 ms would keep frames waiting for so long behind a busy task thread."""


def run_subtask(contact: Contact, log_format: str, secret: bytes) -> None:
    """Called by Spark in every partition of the job's barrier stage. Reports to the driver how it ended; raises
    nothing for what is reported, since Spark could only repeat it less clearly.

    Args:
        log_format: the driver's.
    """
    from pyspark import BarrierTaskContext

    # The driver alone restarts: should Spark try this task again, the driver of an attempt that is over is gone.
    context = BarrierTaskContext.get()
    os.environ[FORMAT_VARIABLE] = log_format
    log_everything("WARNING")
    pandas_late.import_late()
    # Spark may use this process again, for somebody else's job.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    collections = ShortCollections()
    collections.start()
    try:
        run_partition(contact, secret, context.partitionId(), lambda: collections.seconds)
    finally:
        collections.stop()
        sys.setswitchinterval(interval)
        failpoints.install(())


def run_partition(
    contact: Contact,
    secret: bytes,
    partition: int,
    gc_seconds: Callable[[], float],
    *,
    connect: Callable[[Contact, bytes, int], DriverConnection] | None = None,
    system: System = SYSTEM,
    sockets: Sockets = SOCKETS,
) -> None:
    """One subtask, from its first connection to its last; needs no Spark.

    Args:
        gc_seconds: how long the garbage collector has held the process.
        connect: makes the connection to the driver; `None` = by a socket.
        system, sockets: of this process.
    """
    encryption = Encryption(secret) if contact.encrypt else None
    connection = (connect or partial(_connect, encryption=encryption))(contact, secret, partition)
    job = _job_of(connection)
    mailbox = Mailbox(system)
    metrics = TaskMetrics(system.monotonic)
    metrics.gc_seconds = gc_seconds
    where = f"in partition {partition} on host {socket.gethostname()}"
    link = DriverLink(connection, mailbox, metrics, where, job.limits, system)
    link.start()
    copies = None
    try:
        _check_versions(job.versions)
        spec: JobSpec = pickle.loads(job.spec)
        failpoints.install(spec.failpoints)
        storage = CheckpointStorage(spec.checkpoint_uri, spec.pipeline)
        if spec.checkpoints.local_recovery:
            copies = LocalCopies.open(os.environ, storage)
        if spec.probe is not None:
            answer_probe(storage, Probe.from_wire(spec.probe), str(partition))
        network = Network(
            secret,
            connection.local_host,  # its peers are the most likely to reach what the driver sees
            on_wake=mailbox.wake,
            on_error=mailbox.post_failure,
            on_announcement=lambda channel, barrier: mailbox.post(mail.BarrierSeen(channel, barrier)),
            buffers=spec.buffers,
            encryption=encryption,
            system=system,
            sockets=sockets,
        )
        network.start()
    except BaseException as error:
        link.failed(error, permanent=job.first_attempt)
        link.close()
        raise
    try:
        link.report(_hello(partition, network.address, copies))
        deployment = link.await_deployment()
        link.entered("is loading the pipeline's code")
        TaskBuilder(spec, deployment, mailbox, metrics, link, network, copies, system).run()
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


def _connect(
    contact: Contact, secret: bytes, partition: int, encryption: Encryption | None
) -> MessageConnection[ToDriver, ToSubtask]:
    sock = socket.create_connection(contact.driver, _CONNECT_TIMEOUT)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    fail_when_peer_is_gone(sock, contact.vanished)
    secured = sock if encryption is None else encryption.client(sock)
    authenticate_client(secured, secret, f"in partition {partition}", _HANDSHAKE)
    return MessageConnection(ControlConnection(secured), TO_SUBTASK)


def _job_of(connection: DriverConnection) -> Job:
    """The first thing that the driver says; both sides have shown that they know the attempt's secret."""
    message = connection.receive(_JOB_TIMEOUT)
    if not isinstance(message, Job):
        connection.close()
        raise ConnectionLost(f"the driver did not say within {_JOB_TIMEOUT:g} s which job this is")
    return message


def _check_versions(drivers: Mapping[str, str]) -> None:
    mine = versions()
    for name, wanted in drivers.items():
        if mine.get(name) != wanted:
            raise PermanentFailure(
                f"host {socket.gethostname()} has {name} {mine.get(name)} ({sys.executable}) and the driver {wanted}; "
                f"install the same {name} on all hosts, or point PYSPARK_PYTHON to it"
            )


def _hello(partition: int, address: tuple[str, int], copies: LocalCopies | None) -> Hello:
    name = socket.gethostname()
    return Hello(
        versions=versions(),
        partition=partition,
        host=name,
        pid=os.getpid(),
        address=address,
        folder="" if copies is None else f"{name}:{copies.folder}",
        copies=() if copies is None else tuple(copies.held()),
    )
