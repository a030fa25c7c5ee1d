"""Finding the Java that Spark and the embedded broker run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

MINIMUM_JAVA = 17

_INSTALL = (
    f"Weir needs Java {MINIMUM_JAVA} or newer, for Spark and for the embedded Kafka broker. Install it (Debian, "
    f"Ubuntu: apt-get install openjdk-{MINIMUM_JAVA}-jre-headless; macOS: brew install openjdk@{MINIMUM_JAVA}) "
    "and have `java` on PATH, or set JAVA_HOME."
)


class JavaMissing(RuntimeError):
    """There is no Java, or it is too old; the message says what to install."""


def java_path(env: Mapping[str, str] = os.environ) -> str:
    """The path of `java`: that of `JAVA_HOME` if it is set (as Spark does), else on `PATH`. It isn't run.

    Raises:
        JavaMissing: there is no Java.
    """
    home = env.get("JAVA_HOME")
    if home:
        java = str(Path(home) / "bin" / "java")
        if not os.access(java, os.X_OK):
            raise JavaMissing(f"JAVA_HOME is {home}, but {java} can't be executed. {_INSTALL}")
        return java
    found = shutil.which("java", path=env.get("PATH", os.defpath))
    if found is None:
        raise JavaMissing(f"there is no `java` on PATH and JAVA_HOME isn't set. {_INSTALL}")
    return found


def find_java(env: Mapping[str, str] = os.environ) -> str:
    """The path of a `java` that is new enough; see `java_path`.

    Raises:
        JavaMissing: there is no Java, it can't be run, or it is too old.
    """
    java = java_path(env)
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissing(f"`{java} -version` failed: {error}. {_INSTALL}") from error
    version = java_version(told.stderr + told.stdout)
    if version is None:
        raise JavaMissing(f"`{java} -version` tells no version: {told.stderr.strip()!r}. {_INSTALL}")
    if version < MINIMUM_JAVA:
        raise JavaMissing(f"{java} is Java {version}. {_INSTALL}")
    return java


def java_version(output: str) -> int | None:
    """The feature release in what `java -version` prints: 17 for `"17.0.15"`, 8 for `"1.8.0_402"`."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match.group(1)) if match else None
