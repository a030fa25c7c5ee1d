"""Passwords, certificates and permissions of an embedded broker: what its server and its clients must be told."""

from __future__ import annotations

import re
import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from checkpoint.options import named_options

ADMIN: Final = "admin"
"""The user that the broker itself, its Java tools and the test's own calls act as; a superuser."""

LISTENER: Final = "CLIENTS"
"""The name of the listener that clients connect to, and brokers among each other."""

CONTROLLER_LISTENER: Final = "CONTROLLER"

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_PASSWORD: Final = re.compile(r"[!-~]+")
_KEYTOOL_TIMEOUT_S: Final = 60.0
_DAYS_VALID: Final = 3650


class CertificateFailed(RuntimeError):
    """The broker's certificate could not be made; the message has what keytool said."""


@named_options
@dataclass(frozen=True)
class Security:
    """How clients must come to a broker: nothing asked for (the default), passwords, TLS, permissions.

    Attributes:
        users: name → password for SASL/PLAIN. If there are any, `admin` must be one: the broker acts as it.
        tls: a certificate of the broker's own, made at the first start; clients get it as `ssl.ca.location`.
        acls: Kafka's authorizer, which denies everybody but `admin` what no ACL allows. Needs `users`.

    Raises:
        ValueError: see the attributes; or a name or password with characters that don't fit Kafka's configuration.
    """

    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: bool = False
    acls: bool = False

    def __post_init__(self) -> None:
        if self.users and ADMIN not in self.users:
            raise ValueError(f"users of a broker must include {ADMIN!r}, which the broker itself acts as")
        if self.acls and not self.users:
            raise ValueError("acls=True needs users: without them everybody is User:ANONYMOUS")
        for name, password in self.users.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"user name {name!r}: use letters, digits, - and _ only")
            if not _PASSWORD.fullmatch(password) or set(password) & set("\"\\'"):
                raise ValueError(
                    f"the password of {name!r}: use visible ASCII characters without quotes and backslashes"
                )

    @property
    def protocol(self) -> str:
        """Kafka's name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        return ("SASL_SSL" if self.tls else "SASL_PLAINTEXT") if self.users else ("SSL" if self.tls else "PLAINTEXT")

    def client_config(self, user: str | None, folder: Path) -> dict[str, Any]:
        """librdkafka's settings for a client.

        Args:
            user: whom it acts as; `None` = `admin` if there are users.
            folder: where `prepare` put the certificate.

        Raises:
            ValueError: there is no such user.
        """
        if user is not None and user not in self.users:
            raise ValueError(f"the broker has no user {user!r}; its users are {sorted(self.users)}")
        if self.protocol == "PLAINTEXT":
            return {}
        config: dict[str, Any] = {"security.protocol": self.protocol}
        if self.users:
            name = user or ADMIN
            config |= {"sasl.mechanism": "PLAIN", "sasl.username": name, "sasl.password": self.users[name]}
        if self.tls:
            config["ssl.ca.location"] = str(_certificate(folder))
        return config

    def java_client_config(self, folder: Path) -> dict[str, str]:
        """The Java clients' settings to act as `admin`, for Kafka's own tools (`--command-config`)."""
        config = {"security.protocol": self.protocol}
        if self.users:
            config |= {"sasl.mechanism": "PLAIN", "sasl.jaas.config": self._login()}
        if self.tls:
            config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(_certificate(folder))}
        return config

    def server_properties(self, folder: Path) -> dict[str, str]:
        """The broker's. Controllers ask for passwords and TLS too, so that nobody comes in behind them."""
        names = (LISTENER, CONTROLLER_LISTENER)
        properties = {
            "listener.security.protocol.map": ",".join(f"{name}:{self.protocol}" for name in names),
            "inter.broker.listener.name": LISTENER,
            "controller.listener.names": CONTROLLER_LISTENER,
        }
        if self.users:
            accounts = "".join(f' user_{name}="{password}"' for name, password in self.users.items())
            properties |= {
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.mechanism.controller.protocol": "PLAIN",
                **{f"listener.name.{name.lower()}.plain.sasl.jaas.config": self._login(accounts) for name in names},
            }
        if self.tls:
            properties |= {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": str(_keystore(folder)),
                "ssl.keystore.password": _keystore_password(folder),
                "ssl.key.password": _keystore_password(folder),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(_certificate(folder)),
            }
        if self.acls:
            properties |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:{ADMIN}",
                "allow.everyone.if.no.acl.found": "false",
            }
        return properties

    def prepare(self, folder: Path, java: str, host: str) -> None:
        """Make the certificate for `host` and `localhost` in `folder`, unless it is there from an earlier start.

        Raises:
            CertificateFailed: keytool, which comes with Java, is missing or fails.
        """
        if not self.tls or _certificate(folder).exists():
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _password_file(folder).write_text(secrets.token_hex(16))
        _password_file(folder).chmod(0o600)
        _keystore(folder).unlink(missing_ok=True)  # of a start that was interrupted
        kind = "ip" if re.fullmatch(r"[0-9.]+|.*:.*", host) else "dns"
        names = f"SAN=dns:localhost,ip:127.0.0.1,{kind}:{host}"
        store = [
            *("-alias", "broker", "-keystore", str(_keystore(folder)), "-storetype", "PKCS12"),
            *("-storepass:file", str(_password_file(folder))),
        ]
        made = ("-genkeypair", *store, "-keyalg", "EC", "-groupname", "secp256r1", "-validity", str(_DAYS_VALID))
        _keytool(java, *made, "-dname", f"CN={host}", "-ext", names, "-ext", "BC:c=ca:true")
        text = _keytool(java, "-exportcert", "-rfc", *store)
        scratch = _certificate(folder).with_suffix(".new")
        scratch.write_text(text)
        scratch.rename(_certificate(folder))  # last, as it stands for all

    def _login(self, accounts: str = "") -> str:
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        return f'{login} username="{ADMIN}" password="{self.users[ADMIN]}"{accounts};'


def _keystore(folder: Path) -> Path:
    return folder / "broker.p12"


def _certificate(folder: Path) -> Path:
    return folder / "ca.pem"


def _password_file(folder: Path) -> Path:
    return folder / "keystore.password"


def _keystore_password(folder: Path) -> str:
    return _password_file(folder).read_text()


def _keytool(java: str, *arguments: str) -> str:
    """What it prints.

    Raises:
        CertificateFailed: as it says.
    """
    keytool = Path(java).resolve().with_name("keytool")  # `java` on PATH is a link to a folder that has both
    try:
        done = subprocess.run(
            [str(keytool), "-J-XX:TieredStopAtLevel=1", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_KEYTOOL_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CertificateFailed(
            f"{keytool} can't be run: {error}. It comes with Java; install a complete one"
        ) from error
    if done.returncode != 0:
        raise CertificateFailed(
            f"keytool made no certificate (exit status {done.returncode}): {done.stdout}{done.stderr}"
        )
    return done.stdout
