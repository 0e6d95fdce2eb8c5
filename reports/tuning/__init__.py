"""Report: what each setting of the tuned rows is worth."""
