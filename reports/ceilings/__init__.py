"""Report: what CPUs and GPUs reached at best."""
