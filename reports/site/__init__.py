"""A site of many nights: what stands on its index, its histories and its feed."""
