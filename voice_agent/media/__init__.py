"""The server's sound card: the only room that knows aiortc and PyAV.

In: an SDP offer, trickled candidates, RTP. Out: `MicrophoneFrame`s (16 kHz mono, 20 ms, without a hole), voice
probabilities for each 32 ms, the probability that a turn is over. The other way: `AudioOutput`, paced Opus, 48 kHz.

    peer ── track ── microphone (media clock) ── vad, end_of_turn
      │
      ├──── channel (text both ways)
      └──── opus ── paced ── playout (resample)

Who owns what: a `Peer` owns its connection, tasks and threads, and frees them on `close`. Samples count from the
session's start (microphone) or the reply's first chunk (output). Modules are imported by name; this one imports none.
"""
