"""Report: small recurrent networks over their units and time steps."""
