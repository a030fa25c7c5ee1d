"""A web server in the driver: metrics, health, REST and what is wrong with a job. Its libraries come with the extra
`weir-streams[http]`, so that only `server.py` imports what needs them, and is imported once a job has the option."""
