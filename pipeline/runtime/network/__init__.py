"""The data plane: frames, connections, and the two ends of a channel with flow control in bytes."""
