"""`map_async`: requests in flight, in which order their results go on, and how they are asked."""
