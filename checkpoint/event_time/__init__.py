"""Watermarks, pure: made of the timestamps of a source's splits (`generator.py`), combined from what the channels of a
subtask say (`combiner.py`)."""
