"""The command `weir`."""

from pipeline.cli.app import main

__all__ = ["main"]
