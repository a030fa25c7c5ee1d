"""When checkpoints are triggered, complete, fail and are deleted (pure)."""
