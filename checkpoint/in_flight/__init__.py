"""What is in flight when a barrier overtakes it: captured in the queues, written as channel state, restored first.

The way of channel state: `output_queue` and `input_queue` capture it → `captured` holds it → `channel_state` writes and
reads it → `redistribute` gives it to the subtasks of the next attempt → `restored_input` feeds it to one of them →
`replay` tells when all of it is gone.
"""
