"""What all measurements raise."""


class BenchFailed(RuntimeError):
    """A measurement is void; the message says why."""
