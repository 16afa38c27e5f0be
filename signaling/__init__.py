"""Signalling: how an offer becomes a call, and how a call is found again. Strings only.

In: SDP offers, trickled candidates, hang-ups, over HTTP (OpenAI's calls shape; WHIP, RFC 9725).
Out: SDP answers, ICE servers, a Location under which the call lives.
What a call is made of is not known here: `create_call` is handed in, and gives something that fits `Call`.
"""

from signaling.calls import Call, CallLimits, CallRegistry, CallRequest, CreateCall
from signaling.ice import IceServer, IceServers
from signaling.routes import create_signaling_routes
from signaling.seats import Lease, Seats

__all__ = [
    "Call",
    "CallLimits",
    "CallRegistry",
    "CallRequest",
    "CreateCall",
    "IceServer",
    "IceServers",
    "Lease",
    "Seats",
    "create_signaling_routes",
]
