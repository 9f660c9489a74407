"""Running experiments and keeping what they leave."""
