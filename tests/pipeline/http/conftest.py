"""Fixtures of the web server's tests."""

from browser import browser
from spark_fixture import spark

__all__ = ["browser", "spark"]
