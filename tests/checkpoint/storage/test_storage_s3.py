"""What is different in an object store: buckets, credentials, uploads in parts. (The rest: `test_storage.py`.)"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import textwrap

import pytest
from s3_server import Bucket, S3Server, StoredFolder

from checkpoint.storage import arrow_files
from checkpoint.storage.errors import StorageError
from checkpoint.storage.storage import CheckpointStorage

MIB = 1024 * 1024


def prepared(bucket: Bucket, pipeline: str = "orders") -> CheckpointStorage:
    storage = CheckpointStorage(bucket.uri, pipeline)
    storage.prepare()
    return storage


# -- what is refused ------------------------------------------------------------------------------------------


def test_a_bucket_that_does_not_exist_is_named(s3: S3Server) -> None:
    storage = CheckpointStorage(s3.uri("no-such-bucket/weir"), "orders")
    with pytest.raises(StorageError, match=r"s3://no-such-bucket/weir/orders: .*bucket does not exist") as caught:
        storage.prepare()
    assert "choose another folder in CheckpointConfig(uri)" in str(caught.value)


def test_credentials_that_do_not_count_are_an_error_at_every_step(s3: S3Server, bucket: Bucket) -> None:
    storage = prepared(bucket)
    handle = storage.write_file("chk-1-1/a", b"x")
    with s3.checking_credentials():
        for step in (storage.prepare, storage.owners, storage.complete, lambda: storage.read_file(handle)):
            with pytest.raises(
                StorageError, match=r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|ACCESS DENIED|HTTP status 403"
            ):
                step()


def test_an_endpoint_that_nobody_listens_at_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    storage = CheckpointStorage(f"s3://bucket/weir?endpoint_override=127.0.0.1:{port}&scheme=http&region=r", "orders")
    with pytest.raises(StorageError, match=r"cannot write to .* s3://bucket/weir/orders: .*Could not connect"):
        storage.prepare()


def test_a_server_that_does_not_answer_is_waited_for_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_files, "_S3_STALL_TIMEOUT", 1.0)
    monkeypatch.setattr(arrow_files, "_S3_ATTEMPTS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
        storage = CheckpointStorage(f"s3://bucket/weir?endpoint_override={endpoint}&scheme=http&region=r", "orders")
        with pytest.raises(StorageError, match=r"cannot list s3://bucket/weir/orders: .*in the last|last 1 seconds"):
            storage.owners()


def test_an_option_that_is_not_known_is_refused(s3: S3Server) -> None:
    with pytest.raises(StorageError, match=r"options Weir knows endpoint_override, .*, not allow_bucket_creation"):
        CheckpointStorage(s3.uri("bucket/weir") + "&allow_bucket_creation=true", "orders")


def test_credentials_in_the_uri_are_refused_and_not_repeated(s3: S3Server) -> None:
    with pytest.raises(StorageError, match=r"s3://bucket/weir\?.*credentials don't belong into a URI") as caught:
        CheckpointStorage(s3.uri("key:very-secret@bucket/weir"), "orders")
    assert "very-secret" not in str(caught.value)


# -- which folder ---------------------------------------------------------------------------------------------


def test_names_of_any_characters_come_back(bucket: Bucket) -> None:
    storage = prepared(bucket, "Größe 1/2 ~ %2F+&?#")
    handle = storage.write_file("chk-1-1/totals%2D-0-a%20b~.arrow", b"abc")
    assert storage.read_file(handle) == b"abc"
    assert [entry.name for entry in storage.entries("chk-1-1")] == ["totals%2D-0-a%20b~.arrow"]
    assert len(bucket.objects()) == 1
    copy: CheckpointStorage = pickle.loads(pickle.dumps(storage))
    assert copy.same_folder(storage)
    copy.delete_file(handle)
    assert bucket.objects() == []


def test_equal_paths_of_two_servers_are_two_folders(s3: S3Server, bucket: Bucket) -> None:
    elsewhere = bucket.uri.replace(s3.endpoint, "127.0.0.1:1")
    assert not CheckpointStorage(bucket.uri, "orders").same_folder(CheckpointStorage(elsewhere, "orders"))


# -- large objects --------------------------------------------------------------------------------------------


def test_a_large_file_is_uploaded_in_parts_and_seen_once_it_is_closed(bucket: Bucket) -> None:
    storage = prepared(bucket)
    staged = storage.create("shared/1-a.arrow")
    for i in range(25):
        staged.write(bytes([i]) * MIB)
    assert bucket.objects() == []
    assert bucket.uploads() == ["weir/orders/shared/1-a.arrow"]
    handle = staged.close()
    assert handle.size == 25 * MIB
    assert storage.read_file(handle) == b"".join(bytes([i]) * MIB for i in range(25))
    assert bucket.uploads() == []


def test_an_aborted_large_file_leaves_neither_object_nor_upload(bucket: Bucket) -> None:
    staged = prepared(bucket).create("shared/1-a.arrow")
    for _ in range(25):
        staged.write(bytes(MIB))
    staged.abort()
    assert bucket.objects() == []
    assert bucket.uploads() == []


def test_large_metadata_appears_whole_and_under_its_name_only(bucket: Bucket) -> None:
    storage = prepared(bucket)
    storage.put("chk-1-1/_metadata", bytes(25 * MIB))
    assert bucket.objects() == ["weir/orders/chk-1-1/_metadata"]
    assert storage.get("chk-1-1/_metadata") == bytes(25 * MIB)


WRITES_HALF = """
import os, sys
from checkpoint.storage.opening import open_files
files, folder = open_files(sys.argv[1])
path = f"{folder}/orders/chk-1-1/_metadata"
file = files.create_whole(path, 40 << 20)
for _ in range(25):
    file.write(bytes(1 << 20))
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [("os.kill(os.getpid(), 9)", -signal.SIGKILL), ("sys.exit(7)", 7), ("raise SystemError('x')", 1)],
    ids=["killed", "exit", "error"],
)
def test_metadata_that_is_half_uploaded_when_its_process_ends_is_no_checkpoint(
    bucket: Bucket, end: str, code: int
) -> None:
    """pyarrow completes an upload, or hangs, when a process exits that has one under way."""
    done = subprocess.run([sys.executable, "-c", WRITES_HALF + end, bucket.uri], capture_output=True, timeout=300)
    assert done.returncode == code, done.stderr
    storage = CheckpointStorage(bucket.uri, "orders")
    assert storage.complete() == []
    assert bucket.objects() == []
    (upload,) = bucket.uploads()  # for the bucket's lifecycle rule
    assert upload.startswith("weir/orders/chk-1-1/.tmp-")


def test_a_forgotten_file_is_no_object_before_it_is_closed(bucket: Bucket) -> None:
    storage = prepared(bucket)
    staged = storage.create("chk-1-1/a")
    staged.write(b"half")
    del staged
    gc.collect()
    assert bucket.objects() == []


# -- processes ------------------------------------------------------------------------------------------------


def test_a_process_with_a_client_and_a_busy_thread_ends_cleanly(bucket: Bucket) -> None:
    script = """
        import sys, threading
        from checkpoint.storage.errors import StorageError
        from checkpoint.storage.storage import CheckpointStorage
        storage = CheckpointStorage(sys.argv[1], "orders")
        storage.prepare()
        def write():
            for i in range(1_000_000):
                try:
                    storage.put(f"probe-{i}", b"x")
                except StorageError:
                    return
                started.set()
        started = threading.Event()
        threading.Thread(target=write, daemon=True).start()
        started.wait(30)
        sys.exit(7)
    """
    program = [sys.executable, "-c", textwrap.dedent(script), bucket.uri]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (7, "")


def test_what_spark_forks_workers_from_has_no_client() -> None:
    """Its threads would not survive the fork."""
    script = """
        import pipeline.runtime.spark_daemon
        import pyarrow
        from pyarrow import fs
        fs.initialize_s3()
        try:
            fs.initialize_s3()
        except pyarrow.ArrowInvalid as error:
            print("noticed", error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("noticed S3 was already initialized")


def test_a_storage_is_opened_again_in_a_forked_process(bucket: Bucket) -> None:
    """As a subtask does, whose parent may have used another one."""
    script = """
        import os, sys
        import pipeline.runtime.spark_daemon
        from checkpoint.storage.storage import CheckpointStorage
        if os.fork() == 0:
            CheckpointStorage(sys.argv[1], "orders").put("owner", b"x")
            os._exit(0)
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    """
    program = [sys.executable, "-c", textwrap.dedent(script), bucket.uri]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert StoredFolder(bucket, "orders").names() == ["owner"]
