"""The tabular side: exact Bellman mathematics, a conjugate posterior, and the variance of values made of both."""

from ubex import lazy

lazy.install(__name__)
