"""The GPUs, through NVML."""
