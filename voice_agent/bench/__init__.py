"""Measuring over the wire, like a caller: `turn` speaks with a running server over WebRTC and counts milliseconds.

The server's rooms are not imported here, only the leaves and, to make questions and to hear answers again, the
model families. Sound is 48 kHz int16 mono, instants are monotonic nanoseconds of this machine.
"""
