"""Fixtures of the web server's tests."""

from spark_fixture import spark

__all__ = ["spark"]
