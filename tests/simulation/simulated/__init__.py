"""Weir's production state machines with a virtual network, storage, clock and output system around them.

`simulation.Simulation(seed)` runs a random job under a random schedule. What is the shell's in production (threads,
sockets, Spark, files) is here an *actor*: something that may do one step whenever the scheduler picks it.

The way through: `options` and `graph` say what is run → `simulation` restarts `attempt`s → an attempt has `source`,
`operator` and `sink` subtasks, `channel`s between them and a `master` around the checkpoint coordinator → `storage`
and `output` outlive attempts → `checks` says whether what came out is right.
"""
