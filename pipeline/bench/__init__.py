"""`weir bench`: measurements against a bare client, in one run on one machine."""
