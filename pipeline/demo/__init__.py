"""`weir demo`: a year of real flights through Kafka and Weir, with a slow phase and a crash on the way."""
