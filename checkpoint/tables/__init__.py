"""Checkpoints and savepoints as Arrow tables, compared with each other, and written from tables.

Files: `json_form` (any value as JSON and back), `columns` (values as Arrow columns and back), `point` (what is read),
`keyed` (state of keys and timers), `small` (what else a checkpoint holds), `tables` (the tables by name) → `diff` (two
checkpoints), `changes` (tables as changes) → `writing` (a new savepoint).
"""
