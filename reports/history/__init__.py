"""Report: the nights of a store and where they changed."""
