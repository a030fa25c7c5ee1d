"""The driver's side: attempts and restarts, the control server, checkpoints carried out. Its folders: what a start
restores, Spark's part, another parallelism, what a job tells of itself."""
