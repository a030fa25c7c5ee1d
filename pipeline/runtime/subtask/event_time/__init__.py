"""Event time in a subtask: what comes in, timers, what goes out. `event_time.py` joins the others."""
