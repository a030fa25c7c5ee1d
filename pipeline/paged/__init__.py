"""What a key has of which there may be very many: windows, sessions, records that wait for others.

As long as they are few they are one value of state, which takes the least time. What grows beyond a bound is cut into
pages, each a row of its own, so that a record costs what it touches: the value is a directory of them then, until
nothing is left.
"""
