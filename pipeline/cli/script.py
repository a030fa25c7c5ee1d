"""Finding the pipeline in a user's script."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

import click

from pipeline.cli.common import Terminated
from pipeline.errors import PipelineError
from pipeline.job import Pipeline, refusing_starts
from pipeline.runtime import error_text

_FOLDER_VARIABLE: Final = "WEIR_SCRIPT_FOLDER"
"""Tells workers of Weir's own Spark sessions where modules beside the script are (`pipeline.runtime.spark_daemon`)."""


class _ScriptLoader(SourceFileLoader):
    """Compiles the script each time, as Python does with a script that it runs.

    Compiled files are told apart by second and size, so a script that was edited at once could be run as it was before.
    """

    def get_code(self, fullname: str) -> CodeType:
        code = self.source_to_code(self.get_data(self.path), self.path)
        assert isinstance(code, CodeType)
        return code


def find_pipeline(target: str) -> Pipeline:
    """The pipeline that `FILE` or `FILE:NAME` means. Runs the file.

    Raises:
        ClickException: there is no such file or pipeline, the choice is not clear, or the script fails.
    """
    path, name = _split(target)
    if not path.is_file():
        raise click.ClickException(f"{path} is a folder" if path.is_dir() else f"there is no file {path}")
    module = _load(path.resolve())
    found = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    if name is not None:
        if name in found:
            return found[name]
        what = f"is of type {type(vars(module)[name]).__name__}" if name in vars(module) else "isn't there"
        raise click.ClickException(f"{name or repr(name)} {what} in {path}; {_choices(found)}")
    if len({id(pipeline) for pipeline in found.values()}) != 1:
        raise click.ClickException(f"{path}: {_choices(found)}")
    return next(iter(found.values()))


def _split(target: str) -> tuple[Path, str | None]:
    path, colon, name = target.rpartition(":")
    if not colon or Path(target).is_file():
        return Path(target), None
    return Path(path), name


def _choices(found: dict[str, Pipeline]) -> str:
    if not found:
        return "it must define a Pipeline at module level, as in p = Pipeline(...)"
    return f"it defines {', '.join(found)}; choose one with FILE:NAME"


def _load(path: Path) -> ModuleType:
    """Run the script as a module under a name that no other has (`pipeline.py` is a likely name for a script)."""
    folder = str(path.parent)
    # Last: a script's neighbour must not stand in for a module of Weir's or of the standard library.
    if folder not in sys.path:
        sys.path.append(folder)
    os.environ[_FOLDER_VARIABLE] = folder
    name = f"weir_script_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_ScriptLoader(name, str(path)))
    if path.suffix != ".py" or spec is None or spec.loader is None:
        raise click.ClickException(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with refusing_starts():
            spec.loader.exec_module(module)
    except PipelineError as error:  # says all: a traceback of Weir's frames adds nothing
        raise click.ClickException(f"{path}, line {_own_line(error, path)}: {error}") from error
    except SystemExit as error:
        if isinstance(error, Terminated):
            raise
        raise click.ClickException(
            f"{path} ended with {error.code!r} while the weir command was reading it: put what ends it under "
            'if __name__ == "__main__":'
        ) from error
    except Exception as error:
        raise click.ClickException(f"{path} failed:\n{_own_traceback(error, path)}") from error
    return module


def _own_line(error: Exception, path: Path) -> int:
    """The line of the script that the error came from."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] or 0 if lines else 0


def _own_traceback(error: Exception, path: Path) -> str:
    """From the script's own frame on, without Weir's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != str(path):
        trace = trace.tb_next
    described = traceback.TracebackException(type(error), error, trace)
    error_text.leave_out_own_frames(described)
    return "".join(described.format()).rstrip()
