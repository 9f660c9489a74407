"""Agents that learn: `driver.py` runs them, `agent.py` is `ubex.Agent`, and the other files are the learners."""

from ubex import lazy

lazy.install(__name__)
