"""Which interconnect is fastest at which size: one collective on several systems, predicted, measured or imported."""
