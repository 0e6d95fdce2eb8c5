"""Report: the frameworks from oldest to newest."""
