"""The start of an attempt: what is checked, from where it goes on, which subtask gets which state and which place."""
