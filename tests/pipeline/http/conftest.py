"""Fixtures of the web server's tests."""

from browser import browser
from no_otel_variables import no_otel_variables
from spark_fixture import spark

__all__ = ["browser", "no_otel_variables", "spark"]
