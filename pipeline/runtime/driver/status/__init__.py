"""What a job tells of itself: its status, statistics of checkpoints, times of restarts, what it waits for."""
