"""Keyed state as a log of changes: each checkpoint adds a file with what has changed since the last barrier, and lists
those before it. `log` knows the list, `compaction` says which files are merged, `merge` has their rows as those of one,
and `snapshot` is what a barrier takes; it writes files and has them merged. Lists are read by `checkpoint.state.files`.
Any backend that knows what has changed can use it."""
