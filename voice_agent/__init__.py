"""A realtime voice agent backend: speech in, speech out, over WebRTC, WebSocket and telephone."""

__all__ = ["__version__"]
__version__ = "0.1.0"
