"""What `weir bench`'s commands have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

FILE_WIDTH: Final = 160
"""Characters a line of what goes to a file, which has no width of its own."""


def to_write(_: click.Context, __: click.Parameter, file: Path | None) -> Path | None:
    """Refused before anything is measured, rather than after."""
    if file is not None and not file.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {file.parent}")
    return file


json_option = click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=to_write,
    help="Also write the result here.",
)
