"""Fixtures of the command line's tests."""

from spark_fixture import spark

__all__ = ["spark"]
