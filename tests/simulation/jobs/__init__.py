"""Random jobs on the virtual machine: what they are made of, what goes wrong with them, what must come out."""
