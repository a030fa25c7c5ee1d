"""`weir bench backpressure`: checkpoints of a job whose operators do 1 % of what its source could give."""
