"""The heap backend: `backend` → `stores` (for handles and timers) → `maps` (dicts, copied on write); `snapshot`."""
