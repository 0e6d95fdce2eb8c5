"""What to measure: suites, axes, devices and frameworks as data, and the plan made of them."""
