"""Engines: the processes that hold the models, and the server's way to them.

In: requests (`messages`), one small MessagePack frame each, over a Unix socket. Out: results told apart by request id
and epoch; sound as int16 with its rate. Server side: `client` (the contract), `supervisor` (an EngineProcess that is
started, watched, restarted), `process` (one child), `streams` (requests in flight), `connection` (frames). Child side:
`child` (entry), `lanes` and `thinker_process`, `scheduler` and `speech_process`, `context`, `families`. `runtime` is
what both sides share: the spec and the models' protocols.

The server side never imports a model or its libraries; a child imports neither sockets' servers nor media.
"""
