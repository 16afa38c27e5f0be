"""The OpenAI-compatible edge: HTTP and Realtime protocol in, commands for a session out."""
