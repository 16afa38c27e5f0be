"""Engines: the processes that hold the models, and the server's way to them.

In: requests (`messages`), one small MessagePack frame each, over a Unix socket. Out: results told apart by request id
and epoch; sound as int16 with its rate. Server side: `client` (the contract), `supervisor` (an EngineProcess that is
started, watched, restarted), `process` (one child), `streams` (requests in flight), `connection` (frames). Child side:
`child` (entry), `lanes` and `thinker_process`, `scheduler` and `speech_process`, `context`, `families`. `runtime` is
what both sides share: the spec and the models' protocols.

Blocks between engines (hidden rows) go through a pool: `slots` (whose slot it is, pure), `shared_memory`, and
`cuda_ipc` over device memory. Sound stays in the messages: up to 200 ms of it, a pool only costs more (`bench pcm`).
Around a process: `starting` (and a warm spare), `restarts`, `guard` (its own children), `admission` (how many replies
at once), `memory_plan` and `gpus` (what fits where).

The server side never imports a model or its libraries; a child imports neither sockets' servers nor media.
"""
