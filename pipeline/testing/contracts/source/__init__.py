"""The contract of sources: `contract` lists the checks, `stage` and `reader` are what they are written with."""
