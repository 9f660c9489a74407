"""What the browser tests share: a page that notes what goes wrong in it and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass
class Watch:
    """What pages complained about or asked for."""

    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def page(self, context: Any) -> Any:
        """A watched page."""
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: message.type in ("error", "warning") and self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append("a script ran"), dialog.dismiss()))
        page.on("requestfailed", lambda request: self.complaints.append(f"no answer: {request.url}"))
        page.on("request", lambda request: self.requests.append(request.url))
        return page

    def check(self) -> None:
        """Nothing went wrong, and nothing went out."""
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:"))] == []
