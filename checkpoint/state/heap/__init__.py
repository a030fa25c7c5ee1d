"""The heap backend: `backend` → `stores` (for handles and timers) → `maps` (dicts, copied on write); `snapshot`. States
with a time to live have stores of their own, `ttl_stores`; `ttl_rows` says what a snapshot has of them, and `sweep`
removes what is over."""
