"""Keyed state as a log of changes: each checkpoint adds a file with what has changed since the last barrier, and lists
those before it. `log` knows the list, `compaction` says which files are merged, `merge` does it, `files` is where they
lie, and `snapshot` is what a barrier takes. Any backend that knows what has changed can use it."""
