"""Archives of Java classes: who makes them, who uses them, what is left of those that were not finished."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.broker.jars import kafka_jars
from pipeline.broker.java import java_path
from pipeline.broker.native import NativeBroker
from pipeline.class_archive import VARIABLE, ClassArchive, class_archive
from pipeline.errors import PipelineError

JAVA = sys.executable  # it is only looked at


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(VARIABLE, "make")
    return tmp_path / "cache"


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "a.jar").write_bytes(b"classes")
    return folder


def made(jars: Path) -> ClassArchive:
    archive = class_archive("kind", JAVA, jars)
    assert archive.part is not None
    archive.part.write_bytes(b"archive")
    archive.keep()
    return archive


def test_the_first_jvm_makes_the_archive_and_later_ones_use_it(jars: Path) -> None:
    first = class_archive("kind", JAVA, jars)
    assert first.is_made
    assert f"-XX:ArchiveClassesAtExit={first.part}" in first.options
    assert class_archive("kind", JAVA, jars) == ClassArchive()  # it is being made
    first.discard()
    path = made(jars).path
    later = class_archive("kind", JAVA, jars)
    assert not later.is_made
    assert f"-XX:SharedArchiveFile={path}" in later.options


def test_what_a_jvm_wrote_is_synced_before_others_use_it(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(file: Any) -> None:
        done.append(("sync", file.name))
        fsync(file)

    def noted_replace(old: Path, new: Path) -> None:
        done.append(("rename", str(old)))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    part = str(made(jars).part)
    assert done == [("sync", part), ("rename", part)]


def test_a_jvm_does_not_change_each_pointer_of_an_archive(jars: Path) -> None:
    """Its own one here: what is made by these tests is none."""
    made(jars)
    options = [one for one in class_archive("kind", JAVA, jars).options if "SharedArchiveFile" not in one]
    told = subprocess.run(
        [java_path(), *options, "-Xlog:cds=info", "-version"], capture_output=True, text=True, check=True
    )
    assert "Mapped static" in told.stdout
    assert "alternative address" not in told.stdout


def test_what_was_killed_leaves_nothing(jars: Path, cache: Path) -> None:
    archive = class_archive("kind", JAVA, jars)
    archive.discard()
    archive.keep()
    assert list((cache / "classes").iterdir()) == []


def test_a_jvm_that_wrote_nothing_leaves_no_archive(jars: Path, cache: Path) -> None:
    class_archive("kind", JAVA, jars).keep()
    assert list((cache / "classes").iterdir()) == []


@pytest.mark.parametrize("change", ["jar", "time", "more", "kind", "java"])
def test_another_class_path_has_another_archive(jars: Path, tmp_path: Path, change: str) -> None:
    made(jars)
    kind, java = "kind", JAVA
    if change == "jar":
        (jars / "a.jar").write_bytes(b"other classes")
    elif change == "time":
        os.utime(jars / "a.jar", (1, 1))
    elif change == "more":
        (jars / "b.jar").touch()
    elif change == "kind":
        kind = "other"
    else:
        java = str(tmp_path / "java")
        Path(java).touch()
    assert class_archive(kind, java, jars).is_made


def test_halves_of_processes_that_are_gone_are_removed_and_so_are_archives_unused_for_a_month(
    jars: Path, cache: Path
) -> None:
    folder = cache / "classes"
    folder.mkdir(parents=True)
    with subprocess.Popen(["true"]) as gone:
        pass
    for name in (f"other-1.{gone.pid}.part", f"other-2.{os.getpid()}.part", "old.jsa", "recent.jsa"):
        (folder / name).touch()
    os.utime(folder / "old.jsa", (0, time.time() - 31 * 86400))
    class_archive("kind", JAVA, jars).discard()
    assert {path.name for path in folder.iterdir()} == {f"other-2.{os.getpid()}.part", "recent.jsa"}


def test_one_that_is_used_is_not_taken_for_an_old_one(jars: Path) -> None:
    path = made(jars).path
    assert path is not None
    os.utime(path, (0, 0))
    class_archive("kind", JAVA, jars)
    class_archive("other", JAVA, jars).discard()
    assert path.exists()


@pytest.mark.parametrize("value", ["use", "off"])
def test_none_is_made_if_that_is_not_wanted(jars: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(VARIABLE, value)
    assert class_archive("kind", JAVA, jars) == ClassArchive()
    monkeypatch.setenv(VARIABLE, "make")
    assert class_archive("kind", JAVA, jars, may_make=False) == ClassArchive()
    made(jars)
    monkeypatch.setenv(VARIABLE, value)
    assert bool(class_archive("kind", JAVA, jars).options) == (value == "use")


def test_a_misspelt_wish_is_an_error(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "no")
    with pytest.raises(PipelineError, match="WEIR_CLASS_ARCHIVES is 'no', but must be make, use or off"):
        class_archive("kind", JAVA, jars)


def test_without_a_place_for_it_everything_goes_on_without(jars: Path, cache: Path) -> None:
    cache.write_text("not a folder")
    assert class_archive("kind", JAVA, jars) == ClassArchive()


@pytest.mark.sample(1 / 4)
def test_a_broker_archives_its_classes_when_it_stops_and_the_next_one_uses_them(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEIR_CACHE")
    jars = kafka_jars()
    monkeypatch.setenv("WEIR_CACHE", str(cache))
    cache.mkdir()
    (cache / jars.name).symlink_to(jars)
    with NativeBroker.start() as broker:
        broker.restart()  # it stops in between
        (archive,) = (cache / "classes").iterdir()
        assert archive.suffix == ".jsa"
        assert str(archive) in {each.path for each in psutil.Process(broker.pid).memory_maps()}
