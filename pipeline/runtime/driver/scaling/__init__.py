"""Going on at another parallelism: what is advised, what is done without being asked, and how a job changes over."""
