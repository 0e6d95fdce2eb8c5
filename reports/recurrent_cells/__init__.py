"""Report: recurrent cells, by speed, by loss, and by the time to a loss."""
