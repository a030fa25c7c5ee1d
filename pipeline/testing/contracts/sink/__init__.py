"""The contract of sinks: `contract` lists the rules; `stage`, `rule` and `sink_job` are what they are written with."""
