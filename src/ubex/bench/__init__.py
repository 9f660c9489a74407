"""What `ubex bench` measures: ratios inside one run, never absolute times that depend on the machine's mood."""
