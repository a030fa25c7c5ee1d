"""The RocksDB backend: state on a local disk, larger than memory.

`database` (the files and the memory that all of a process share) and `folder` (where they are) → `groups` (the dicts
that the stores of the heap work on, here a write-back cache of rows) and `rows` (what a row has) → `timers` →
`snapshot`, `changes` (what a snapshot of changes has), `restoring`, `sweep` → `backend`.

    key group, 2 bytes big-endian · number of the state, 2 bytes · key, or time and key of a timer → stamps · value

A change is written to RocksDB when its dict gets too large, when many have changed, and at a barrier. There is no
write-ahead log: what counts is in the checkpoints, and the folder is deleted when the backend ends.
"""
