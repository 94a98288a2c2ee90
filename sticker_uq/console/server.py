"""The web server behind the operator's page, in a thread of its own."""

from __future__ import annotations

import secrets
import threading

import uvicorn
from pydantic import BaseModel, ConfigDict, Field

from sticker_uq.console.app import Cell, make_app
from sticker_uq.console.state import ConsoleState
from sticker_uq.io.images import Transport
from sticker_uq.scene import InvalidInput

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_CLOSING_S = 5.0


class ConsoleSettings(BaseModel):
    """Parameters of the console."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(
        "127.0.0.1", min_length=1, description="Address to listen on; other than loopback needs a token"
    )
    port: int = Field(8780, ge=0, le=65535, description="TCP port; 0: any free one")
    token: str = Field(
        "", description="Token the page asks for; empty: made at start and logged, where one is needed"
    )
    answer_timeout_s: float = Field(
        5.0, ge=0.1, le=60.0, description="Time the supervisor has to take an answer, s"
    )
    image_transport: Transport = Field(
        "raw", description="Show image or image/compressed; the same as the detector's"
    )
    kept_images: int = Field(
        24,
        ge=1,
        le=1000,
        description="Newest images kept in memory until their scene is published; more for a fast camera with a slow model",
    )


class PageServer:
    """Serves the page of ``cell`` from its construction until :meth:`close`. ``port``: where; ``address``: the same as a link.

    Raises :class:`InvalidInput` when the address cannot be listened on.
    """

    def __init__(self, state: ConsoleState, cell: Cell, settings: ConsoleSettings) -> None:
        token = settings.token
        if settings.host not in _LOOPBACK and not token:
            token = secrets.token_urlsafe(18)
        config = uvicorn.Config(
            make_app(state, cell, token),
            settings.host,
            settings.port,
            log_level="warning",
            ws="websockets-sansio",
        )
        try:
            socket = config.bind_socket()
        except SystemExit:
            raise InvalidInput(
                f"host {settings.host} and port {settings.port} cannot be listened on: is another console running?"
            ) from None
        socket.listen()  # whoever comes before the server runs waits instead of being turned away
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([socket],), name="web", daemon=True)
        self._thread.start()
        self.port: int = socket.getsockname()[1]
        query = f"/?token={token}" if token else "/"
        self.address = f"http://{settings.host}:{self.port}{query}"

    def close(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        self._thread.join(_CLOSING_S)
