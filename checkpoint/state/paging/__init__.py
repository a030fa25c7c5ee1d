"""Large lists and maps of one key, in pages, so that a change of one entry costs the page that it is in.

As long as they are small they are one row, which takes the least time. What grows beyond a bound is cut: its row is a
small *directory* then, and beside it lie *pages*, rows of their own under `codec.page_key`. `rows` says what both look
like, `maps` and `lists` work on them, `spread` tells in which page an entry of a map is, and `folding` makes one row of
them again, for whoever reads a snapshot.
"""
