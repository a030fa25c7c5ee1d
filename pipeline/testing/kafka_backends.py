"""Where a test's broker comes from: one that runs already, a container, or a child process (`NativeBroker`)."""

from __future__ import annotations

import atexit
import importlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from pipeline.broker import NativeBroker
from pipeline.broker.jars import KAFKA_VERSION
from pipeline.broker.ports import free_ports
from pipeline.broker.readiness import await_broker
from pipeline.broker.security import Security

BackendKind = Literal["running", "docker", "native"]

DEFAULT_IMAGE: Final = f"apache/kafka:{KAFKA_VERSION}"
_RUNNING_TIMEOUT_S: Final = 30.0
_CONTAINER_TIMEOUT_S: Final = 60.0
_ENGINE_TIMEOUT_S: Final = 120  # an image may have to be pulled

log = logging.getLogger(f"weir.{__name__}")


class Backend(Protocol):
    """A broker whose life a test controls."""

    @property
    def bootstrap_servers(self) -> str: ...

    def client_config(self, user: str | None = None) -> dict[str, Any]: ...

    def kill(self) -> None: ...

    def restart(self) -> None: ...

    def stop(self) -> None: ...


class BackendUnavailable(RuntimeError):
    """This kind of broker can't be had here; the message says why."""


class OpenBackend:
    """One that asks its clients for nothing."""

    def client_config(self, user: str | None = None) -> dict[str, Any]:
        """
        Raises:
            ValueError: a user is asked for.
        """
        return Security().client_config(user, Path())


class RunningBackend(OpenBackend):
    """The broker that `WEIR_KAFKA_BOOTSTRAP` names. Others may use it too, so it is never killed or stopped."""

    def __init__(self, properties: Mapping[str, object]) -> None:
        servers = os.environ.get("WEIR_KAFKA_BOOTSTRAP")
        if not servers:
            raise BackendUnavailable("WEIR_KAFKA_BOOTSTRAP isn't set")
        if properties:
            raise BackendUnavailable(f"the running broker at {servers} can't be given properties")
        await_broker(servers, _RUNNING_TIMEOUT_S)
        self.bootstrap_servers = servers

    def kill(self) -> None:
        raise RuntimeError(self._not_ours("killed"))

    def restart(self) -> None:
        raise RuntimeError(self._not_ours("restarted"))

    def stop(self) -> None:
        """Leaves it running."""

    def _not_ours(self, what: str) -> str:
        return (
            f"the broker at {self.bootstrap_servers} (WEIR_KAFKA_BOOTSTRAP) isn't the test's own and can't be {what}; "
            'start one with KafkaBroker.start(kind="native")'
        )


class DockerBackend(OpenBackend):
    """A container through testcontainers. Its port is chosen here, so that it stays the same over restarts."""

    def __init__(self, properties: Mapping[str, object]) -> None:
        image = os.environ.get("WEIR_KAFKA_IMAGE") or DEFAULT_IMAGE
        _check_image(image)
        from testcontainers.core.container import DockerContainer

        host = "127.0.0.1"
        port = free_ports(1, host)[0]
        self.bootstrap_servers = f"{host}:{port}"
        self._container = DockerContainer(image)
        ports: dict[str, Any] = self._container.ports  # with_bind_ports would bind to every address of the host
        ports["9092/tcp"] = (host, port)
        settings = {**_container_properties(self.bootstrap_servers), **properties}
        for name, value in settings.items():
            self._container.with_env(environment_name(name), str(value))
        try:
            self._container.start()
            atexit.register(self.stop)
            await_broker(self.bootstrap_servers, _CONTAINER_TIMEOUT_S, self._check_alive)
        except BaseException:
            self.stop()
            raise

    def kill(self) -> None:
        container = self._container.get_wrapped_container()
        container.reload()
        if container.status == "running":
            container.kill()
            container.wait()

    def restart(self) -> None:
        self._container.get_wrapped_container().restart(timeout=15)
        await_broker(self.bootstrap_servers, _CONTAINER_TIMEOUT_S, self._check_alive)

    def stop(self) -> None:
        atexit.unregister(self.stop)
        if self._container.get_wrapped_container() is not None:
            self._container.stop()

    def _check_alive(self) -> None:
        container = self._container.get_wrapped_container()
        container.reload()
        if container.status not in ("created", "running", "restarting"):
            tail = container.logs(tail=40).decode(errors="replace")
            raise RuntimeError(f"the Kafka container is {container.status}. The end of its log:\n{tail}")


def environment_name(prop: str) -> str:
    """The variable by which the `apache/kafka` image takes a property: `KAFKA_OFFSETS_RETENTION_MINUTES`."""
    return "KAFKA_" + prop.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def start_backend(
    kind: BackendKind | None, properties: Mapping[str, object], security: Security | None = None
) -> tuple[BackendKind, Backend]:
    """The first kind that can be had of: running, docker, native; or the one asked for.

    Raises:
        BackendUnavailable: `kind` was given and can't be had.
        ValueError: `security` is asked for and `kind` isn't native.
        BrokerFailed, JavaMissing, FetchFailed: see `NativeBroker.start`.
    """
    if security is not None and kind != "native":
        raise ValueError('only a native broker can be given security: KafkaBroker.start(kind="native", security=…)')
    makers: dict[BackendKind, Callable[[], Backend]] = {
        "running": lambda: RunningBackend(properties),
        "docker": lambda: DockerBackend(properties),
        "native": lambda: NativeBroker.start(properties, security=security),
    }
    if kind is not None:
        return kind, makers[kind]()
    for each, make in makers.items():
        try:
            return each, make()
        except BackendUnavailable as reason:
            log.info("no Kafka broker of kind %r: %s", each, reason)
    raise AssertionError("the native broker never declares itself unavailable")


def docker_trouble(image: str | None = None) -> str | None:
    """Why no container can be started here (no engine, no image), or `None` if one can."""
    try:
        _check_image(image or os.environ.get("WEIR_KAFKA_IMAGE") or DEFAULT_IMAGE)
    except BackendUnavailable as reason:
        return str(reason)
    return None


def _check_image(image: str) -> None:
    try:
        docker = importlib.import_module("docker")
        errors = importlib.import_module("docker.errors")
    except ImportError as error:
        raise BackendUnavailable(
            f"testcontainers isn't installed ({error}); pip install 'weir-streams[test]'"
        ) from error
    try:
        client = docker.from_env(timeout=_ENGINE_TIMEOUT_S)
    except errors.DockerException as error:
        raise BackendUnavailable(f"no Docker engine answers ({error})") from error
    try:
        client.ping()
        try:
            client.images.get(image)
        except errors.ImageNotFound:
            repository, _, tag = image.partition(":")
            client.images.pull(repository, tag=tag or "latest")
    except (errors.DockerException, OSError) as error:  # requests' errors are OSErrors
        raise BackendUnavailable(f"no Docker engine with the image {image} ({error})") from error
    finally:
        client.close()


def _container_properties(advertised: str) -> dict[str, Any]:
    """All that the image needs once one property is given: any makes it ignore its own configuration file."""
    return {
        "node.id": 1,
        "process.roles": "broker,controller",
        # The broker's transaction coordinator connects to the broker, too, and within the container nobody listens at
        # the address that the host has for it.
        "listeners": "PLAINTEXT://:9092,INTERNAL://localhost:9094,CONTROLLER://:9093",
        "advertised.listeners": f"PLAINTEXT://{advertised},INTERNAL://localhost:9094",
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "controller.quorum.voters": "1@localhost:9093",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        "auto.create.topics.enable": "false",
    }
