"""Pages of the site that are made from what stands elsewhere: the README, the changelog, and docstrings."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = {
    "pipeline": "pipeline",
    "sources": "sources",
    "sinks": "sinks",
    "formats": "formats",
    "testing": "pipeline.testing",
}


def on_files(files: Files, config: Any) -> Files:
    pages = {
        "index.md": (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "]("),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "]("),
        **{f"reference/{page}.md": _reference(package) for page, package in PACKAGES.items()},
    }
    pages["index.md"] = pages["index.md"].replace("(CHANGELOG.md)", "(changelog.md)")
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def _reference(package: str) -> str:
    """All public names of a package, each with its docstring."""
    names = sorted(importlib.import_module(package).__all__)
    return f"# `{package}`\n\n" + "".join(f"::: {package}.{name}\n\n" for name in names)
