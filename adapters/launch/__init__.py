"""One launch inside the guest process: from cell.json to outcome.json."""
