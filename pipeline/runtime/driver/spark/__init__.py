"""Spark's part: its JVM, the session and its slots, the daemon that workers are forked from, the job of an attempt."""
