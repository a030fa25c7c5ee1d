"""When a source may fetch: a span between two barriers, bounded by time and by a learned window (pure)."""
