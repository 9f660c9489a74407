"""What `plot` returns. It is a module of its own, since matplotlib is imported only where something is drawn."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class Picture(Figure):
    """A figure that notebooks show. Of figures that pyplot did not make they print the size alone."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()
