"""Which launches count, what their own evidence says, and the statistics of them."""
