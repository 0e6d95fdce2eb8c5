"""The output formats that every report can take."""
