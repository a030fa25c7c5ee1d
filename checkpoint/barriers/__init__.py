"""When a subtask takes its snapshot: `handler` aligns barriers or doesn't, `tracker` only counts them (pure)."""
