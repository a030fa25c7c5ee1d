"""An S3 server on this machine: moto's, as a process of its own, since subtasks talk to it, too."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import boto3
from botocore.config import Config

ENVIRONMENT: Final = {
    "AWS_ACCESS_KEY_ID": "weir",
    "AWS_SECRET_ACCESS_KEY": "weir-secret",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""What processes need that use it. The credentials count only while `S3Server.checking_credentials`."""

_REGION: Final = "us-east-1"
_START_SECONDS: Final = 30.0


@dataclass
class S3Server:
    endpoint: str
    """`127.0.0.1:<port>`"""
    process: subprocess.Popen[bytes]

    @classmethod
    @contextmanager
    def start(cls) -> Iterator[Self]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with tempfile.TemporaryFile() as log:
            command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
            server = cls(f"127.0.0.1:{port}", process)
            try:
                deadline = time.monotonic() + _START_SECONDS
                while not server._answers():
                    if process.poll() is not None or time.monotonic() >= deadline:
                        log.seek(0)
                        raise RuntimeError(f"moto's server does not answer: {log.read().decode()[-2000:]}")
                    time.sleep(0.05)
                yield server
            finally:
                process.kill()
                process.wait()

    def new_bucket(self) -> Bucket:
        name = f"weir-{uuid.uuid4().hex}"
        client = self.client()
        client.create_bucket(Bucket=name)
        return Bucket(self, name, client)

    def client(self) -> Any:
        key, secret = ENVIRONMENT["AWS_ACCESS_KEY_ID"], ENVIRONMENT["AWS_SECRET_ACCESS_KEY"]
        return boto3.client(
            "s3",
            endpoint_url=f"http://{self.endpoint}",
            region_name=_REGION,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            config=Config(retries={"total_max_attempts": 1}),
        )

    def uri(self, path: str) -> str:
        """URI of `<bucket>/<key>`."""
        return f"s3://{path}?endpoint_override={self.endpoint}&scheme=http&region={_REGION}"

    @contextmanager
    def checking_credentials(self) -> Iterator[None]:
        """Nobody has any rights meanwhile, since there are no users."""
        self._post("reset-auth", b"0")
        try:
            yield
        finally:
            self._post("reset-auth", b"inf")

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{self.endpoint}/moto-api/", timeout=5):
            return True
        return False

    def _post(self, what: str, data: bytes) -> None:
        headers = {"Content-Type": "application/octet-stream"}
        with urllib.request.urlopen(urllib.request.Request(f"http://{self.endpoint}/moto-api/{what}", data, headers)):
            pass


@dataclass
class Bucket:
    """A bucket as a test sees it that looks behind the storage's back."""

    server: S3Server
    name: str
    client: Any

    @property
    def uri(self) -> str:
        """A folder in it, for a `CheckpointConfig`."""
        return self.server.uri(f"{self.name}/weir")

    def objects(self) -> list[str]:
        """Names of all objects in order, without those that only mark a folder."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return [key for key in keys if not key.endswith("/")]

    def get(self, key: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return content

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)

    def uploads(self) -> list[str]:
        """Keys of uploads in parts that are neither completed nor aborted."""
        return [each["Key"] for each in self.client.list_multipart_uploads(Bucket=self.name).get("Uploads", ())]


class StoredFolder:
    """A job's folder behind the storage's back, on whatever kind of storage."""

    def __init__(self, root: Path | Bucket, pipeline: str) -> None:
        self._bucket = root if isinstance(root, Bucket) else None
        self._folder = root / pipeline if isinstance(root, Path) else Path("weir", pipeline)
        bucket = "" if self._bucket is None else f"{self._bucket.name}/"
        self.location = f"{'file' if self._bucket is None else 's3'}://{bucket}{self._folder}"

    def names(self) -> list[str]:
        """Names of all files, relative to the folder, in order."""
        if self._bucket is not None:
            prefix = f"{self._folder}/"
            return sorted(key.removeprefix(prefix) for key in self._bucket.objects() if key.startswith(prefix))
        return sorted(p.relative_to(self._folder).as_posix() for p in self._folder.rglob("*") if p.is_file())

    def read(self, name: str) -> bytes:
        path = self._folder / name
        return path.read_bytes() if self._bucket is None else self._bucket.get(str(path))

    def write(self, name: str, data: bytes) -> None:
        path = self._folder / name
        if self._bucket is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        else:
            self._bucket.put(str(path), data)

    def delete(self, name: str) -> None:
        if self._bucket is None:
            os.unlink(self._folder / name)
        else:
            self._bucket.delete(str(self._folder / name))
