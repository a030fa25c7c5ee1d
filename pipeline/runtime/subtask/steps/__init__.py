"""Each kind of step as it runs in a subtask. `table.py` knows them all."""
