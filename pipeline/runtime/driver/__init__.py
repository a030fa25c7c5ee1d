"""The driver's side: attempts and restarts, the control server, Spark's job, checkpoints carried out."""
