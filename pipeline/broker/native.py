"""`NativeBroker`: one Kafka broker (KRaft, broker and controller in one) as a child process."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from pipeline.broker import supervisor
from pipeline.broker.jars import KAFKA_VERSION, kafka_jars
from pipeline.broker.java import find_java
from pipeline.broker.java_tool import run_java_tool
from pipeline.broker.ports import free_ports, obstacle
from pipeline.broker.readiness import await_broker
from pipeline.broker.security import CONTROLLER_LISTENER, LISTENER, Security
from pipeline.broker.server_properties import DEFAULTS, LOGGING, check_properties, new_cluster_id, write_properties
from pipeline.class_archive import EXIT_SECONDS, ClassArchive, class_archive

_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 15.0
_PORT_ATTEMPTS: Final = 3
_KILLED: Final = 128 + signal.SIGKILL
"""What `supervisor` ends with if somebody else has killed the JVM."""
_JVM_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


class BrokerFailed(RuntimeError):
    """The broker did not start, or ended; the message has the end of its log."""


class NativeBroker:
    """A broker that is this process's own; ends with it, however that ends. Not thread-safe.

    `start` makes one by itself; `NativeCluster` makes several, `prepare`s and `launch`es them.
    """

    def __init__(
        self,
        *,
        java: str,
        jars: Path,
        host: str,
        port: int,
        directory: Path,
        ephemeral: bool,
        controllers: Mapping[int, int],
        node: int = 1,
        security: Security | None = None,
        security_folder: Path | None = None,
        heap_mb: int = 512,
    ) -> None:
        """
        Args:
            ephemeral: whether `directory` is removed at the end.
            controllers: node → port of its controller on 127.0.0.1, of all nodes of the cluster.
            security_folder: where certificates are; `None` = below `directory`.
        """
        self.node = node
        self.security = security or Security()
        self._java_path = java
        self._host = host
        self._port = port
        self._controllers = dict(controllers)
        self._directory = directory
        self._security_folder = security_folder or directory / "security"
        self._ephemeral = ephemeral
        logging = f"-Dlog4j2.configurationFile={directory / 'log4j2.properties'}"
        self._java_options = [f"-Xmx{heap_mb}m", *_JVM_OPTIONS, logging, "-cp", f"{jars}/*"]
        self._jars = jars
        self._archive = ClassArchive()
        self._process: subprocess.Popen[str] | None = None
        self._pid: int | None = None
        self._owner = os.getpid()

    @classmethod
    def start(
        cls,
        properties: Mapping[str, object] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        directory: Path | None = None,
        security: Security | None = None,
        version: str = KAFKA_VERSION,
        timeout: float = _START_TIMEOUT_S,
    ) -> Self:
        """Start a broker and return once it answers. The first call ever fetches Kafka (`pipeline.broker.jars`).

        Args:
            properties: server.properties to add or replace (`{"offsets.retention.minutes": 1}`).
            host: address to listen on and to advertise.
            port: `None` = a free one.
            directory: data, configuration and log; kept at the end, and used again if it has data from an earlier
                run. `None` = a temporary one, removed at the end.
            security: what clients must bring; `None` = nothing. See `client_config`.
            version: of Kafka.
            timeout: seconds until it must answer (fetching not counted).

        Raises:
            BrokerFailed: it ended, doesn't answer in time, or can't have its address or folder.
            JavaMissing: no Java, or one too old.
            FetchFailed: the jars can't be fetched.
            CertificateFailed: keytool made no certificate.
            ValueError: a property that this class must set itself.
        """
        check_properties(properties or {})
        if (why := obstacle(host, port or 0)) is not None:
            raise BrokerFailed(why)
        java, jars = find_java(), kafka_jars(version=version)
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            free = free_ports(2, host)
            broker = cls(
                java=java,
                jars=jars,
                host=host,
                port=port if port is not None else free[0],
                controllers={1: free[1]},
                security=security,
                directory=Path(tempfile.mkdtemp(prefix="weir-kafka-")) if directory is None else directory.resolve(),
                ephemeral=directory is None,
            )
            try:
                broker.prepare(properties or {}, new_cluster_id())
                broker.launch(timeout)
            except BrokerFailed:
                # Another process may have taken a port between our look and Kafka's bind.
                taken = broker.lost_its_port() and port is None
                broker.stop()
                if not taken or attempt == _PORT_ATTEMPTS:
                    raise
            except OSError as error:
                broker.stop()
                raise BrokerFailed(f"the broker's folder can't be used: {error}") from error
            except BaseException:
                broker.stop()
                raise
            else:
                return broker
        raise AssertionError("unreachable")

    @property
    def bootstrap_servers(self) -> str:
        return f"{self._host}:{self._port}"

    def client_config(self, user: str | None = None) -> dict[str, Any]:
        """librdkafka's settings for a client besides `bootstrap.servers`; empty without `security`.

        Args:
            user: whom the client acts as; `None` = `admin`, if there are users.

        Raises:
            ValueError: there is no such user.
        """
        return self.security.client_config(user, self._security_folder)

    def java_tool(self, main_class: str, *arguments: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's Java tools; see `run_java_tool`. It needs `--bootstrap-server` and, where the broker has
        `security`, `--command-config` with `admin_config_path`."""
        return run_java_tool(main_class, *arguments, timeout=timeout)

    @property
    def admin_config_path(self) -> Path:
        """A properties file by which Java clients act as `admin`."""
        return self._directory / "admin.properties"

    @property
    def port(self) -> int:
        return self._port

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def log_path(self) -> Path:
        return self._directory / "broker.log"

    @property
    def pid(self) -> int | None:
        """Process id of the JVM; `None` while it does not run."""
        return self._pid if self.alive else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_tail(self, lines: int = 40) -> str:
        """The end of the broker's log."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def kill(self) -> None:
        """SIGKILL. The data stays, as after a crash of the process; see `restart`."""
        if self.alive and self._pid is not None:
            _signal(self._pid, signal.SIGKILL)
            self._wait(_STOP_TIMEOUT_S)
        self._archive.discard()
        self._process = None

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections, and says and hears nothing."""
        if self.alive and self._pid is not None:
            _signal(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT: it goes on as if no time had passed."""
        if self.alive and self._pid is not None:
            _signal(self._pid, signal.SIGCONT)

    def restart(self, timeout: float = _START_TIMEOUT_S) -> None:
        """Start again on the same port with the same data; shuts down first (cleanly) if it runs.

        Raises:
            BrokerFailed: it ended or doesn't answer in time.
        """
        self.shut_down()
        self.launch(timeout)

    def stop(self) -> None:
        """Shut down, after 15 s by SIGKILL, and remove a temporary folder. May be called twice."""
        self.shut_down()
        atexit.unregister(self._stop_at_exit)
        if self._ephemeral:
            shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- its parts, for clusters ------------------------------------------------------------------------------

    @property
    def _properties_path(self) -> Path:
        return self._directory / "server.properties"

    def prepare(self, properties: Mapping[str, object], cluster_id: str) -> None:
        """Write the configuration, and format the storage for `cluster_id` unless it has been.

        Raises:
            BrokerFailed: the storage can't be formatted.
            CertificateFailed: keytool made no certificate.
        """
        atexit.register(self._stop_at_exit)
        self._directory.mkdir(parents=True, exist_ok=True)
        self.security.prepare(self._security_folder, self._java_path, self._host)
        address = f"{LISTENER}://{self._host}:{self._port}"
        controller = f"{CONTROLLER_LISTENER}://127.0.0.1:{self._controllers[self.node]}"
        settings: dict[str, object] = {
            **DEFAULTS,
            **self.security.server_properties(self._security_folder),
            "node.id": self.node,
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{port}" for n, port in self._controllers.items()),
            "listeners": f"{address},{controller}",
            "advertised.listeners": address,
            "log.dirs": str(self._directory / "data"),
            **properties,
        }
        write_properties(self._properties_path, settings)
        write_properties(self.admin_config_path, self.security.java_client_config(self._security_folder))
        (self._directory / "log4j2.properties").write_text(LOGGING)
        archive = class_archive("kafka", self._java_path, self._jars, may_make=False)
        command = [self._java_path, *archive.options, *self._java_options]
        command += ["kafka.tools.StorageTool", "format", "--ignore-formatted"]
        with self.log_path.open("a") as log:
            formatted = subprocess.run(
                [*command, "-t", self._cluster_id() or cluster_id, "-c", str(self._properties_path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
        if formatted.returncode != 0:
            raise BrokerFailed(f"Kafka's storage can't be formatted in {self._directory}:\n{self.log_tail()}")

    def launch(self, timeout: float = _START_TIMEOUT_S) -> None:
        """Start the process and return once it answers and its cluster counts it in.

        Raises:
            BrokerFailed: it ended or doesn't answer in time.
        """
        self._archive = class_archive("kafka", self._java_path, self._jars)
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", supervisor.__file__, str(os.getpid())),
                    *(str(self._directory) if self._ephemeral else "-", self._java_path),
                    *(*self._archive.options, *self._java_options, "kafka.Kafka", str(self._properties_path)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is the job's to handle; the broker must still be there for its end
            )
        assert self._process.stdout is not None
        with self._process.stdout as told:
            line = told.readline()
        if not line:
            raise BrokerFailed(f"the Kafka broker can't be started:\n{self.log_tail()}")
        self._pid = int(line)
        try:
            await_broker(
                self.bootstrap_servers,
                timeout,
                self._check_alive,
                cluster_id=self._cluster_id(),
                nodes={self.node},
                config=self.client_config(),
            )
        except TimeoutError as error:
            self.kill()
            raise BrokerFailed(f"{error}. The end of its log:\n{self.log_tail()}") from error

    def lost_its_port(self) -> bool:
        """Whether it ended as another server had taken its port."""
        return "Address already in use" in self.log_tail()

    def shut_down(self) -> None:
        """End the process, after 15 s by SIGKILL (60 s if it archives its classes); the data stays."""
        if self.alive and self._pid is not None:
            _signal(self._pid, signal.SIGTERM)
            _signal(self._pid, signal.SIGCONT)  # a paused one would not hear it
            if self._wait(EXIT_SECONDS if self._archive.is_made else _STOP_TIMEOUT_S):
                if self._process is not None and self._process.returncode != _KILLED:
                    self._archive.keep()
            else:
                _signal(self._pid, signal.SIGKILL)
                self._wait(_STOP_TIMEOUT_S)
        self._archive.discard()
        self._process = None

    # -- inside -----------------------------------------------------------------------------------------------

    def _cluster_id(self) -> str | None:
        """What the storage was formatted for; `None` if it wasn't yet."""
        path = self._directory / "data" / "meta.properties"
        if not path.exists():
            return None
        return next(line.partition("=")[2] for line in path.read_text().splitlines() if line.startswith("cluster.id="))

    def _check_alive(self) -> None:
        if not self.alive:
            raise BrokerFailed(f"the Kafka broker ended while starting. The end of its log:\n{self.log_tail()}")

    def _wait(self, timeout: float) -> bool:
        assert self._process is not None
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _stop_at_exit(self) -> None:
        if os.getpid() == self._owner:  # not in a fork of it
            self.stop()


def _signal(pid: int, signum: int) -> None:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        pass  # has just ended by itself; the wait that follows sees it
