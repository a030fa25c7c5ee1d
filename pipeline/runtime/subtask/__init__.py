"""One subtask: its process and threads, the record loop, the chain of operators, and its part in checkpoints."""
