"""Running experiments and keeping what they leave."""

from ubex import lazy

lazy.install(__name__)
