"""A virtual machine for the runtime: one scheduler with a seed runs all processes, on a clock that jumps.

Threads are fibers (greenlets). One runs until it waits, or until code in it says that it takes time; then the scheduler
chooses who is next. Sockets, files and processes are virtual; the code that uses them is production code.
"""
