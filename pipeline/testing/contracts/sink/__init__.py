"""The contract of sinks: `contract` lists the rules; `stage`, `rule` and `rehearsal` are what they are written with."""
