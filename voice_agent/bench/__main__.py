"""`voice-agent bench WHAT`: which measurement, then its own options."""

import sys
from collections.abc import Sequence

WHAT = tuple("turn speech silence endpoint handover pcm media lag crash thinker".split())
USAGE = f"""usage: voice-agent bench {{{",".join(WHAT)}}} [options]

  turn    voice-to-voice, stop and cancel latency of a running server (voice-agent bench turn --help);
          with --set also what it does about barge-ins, sounds of listening, noises and pauses
  speech  first sound, gaps and capacity of a speech route under load, ours or another server's;
          with --quality latency first against quality first at several chunk sizes, without a server
  silence what cutting the silence before a reply's first word gains, in ms for each voice; needs no server
  endpoint
          how the end of turn's knobs trade false cut-offs against waiting; needs no server
  handover
          a step's hidden rows from one process to the other: queue, shared memory, CUDA IPC; needs no server
  pcm     sound from the speech engine to the server: in the message, or through shared memory; needs no server
  media   what a session costs the CPU by WebRTC and WebSocket, and how many a core carries; starts its own server
  lag     how late the server's event loop is while 8 callers talk, against a bare loop; starts its own server
  crash   what a killed engine costs its own replies and the engine beside it; a profile's models, no server
  thinker what our engine path adds to vLLM called bare; needs a GPU and vLLM, no weights, no server"""


def main(argv: Sequence[str]) -> int:
    """Run the named bench with the rest of the command line; returns its exit status."""
    if argv[:1] == ["turn"]:
        from voice_agent.bench.turn import main as turn

        return turn(argv[1:])
    if argv[:1] == ["speech"]:
        from voice_agent.bench.speech import main as speech

        return speech(argv[1:])
    if argv[:1] == ["silence"]:
        from voice_agent.bench.silence import main as silence

        return silence(argv[1:])
    if argv[:1] == ["endpoint"]:
        from voice_agent.bench.endpoint import main as endpoint

        return endpoint(argv[1:])
    if argv[:1] == ["handover"]:
        from voice_agent.bench.handover import main as handover

        return handover(argv[1:])
    if argv[:1] == ["pcm"]:
        from voice_agent.bench.pcm import main as pcm

        return pcm(argv[1:])
    if argv[:1] == ["media"]:
        from voice_agent.bench.media import main as media

        return media(argv[1:])
    if argv[:1] == ["lag"]:
        from voice_agent.bench.lag import main as lag

        return lag(argv[1:])
    if argv[:1] == ["crash"]:
        from voice_agent.bench.crash import main as crash

        return crash(argv[1:])
    if argv[:1] == ["thinker"]:
        from voice_agent.bench.thinker import main as thinker

        return thinker(argv[1:])
    asked_for_help = argv[:1] in (["-h"], ["--help"])
    if argv and not asked_for_help:
        print(f"voice-agent bench: {argv[0]!r} is none of {', '.join(WHAT)}", file=sys.stderr)
        return 2
    print(USAGE, file=sys.stdout if asked_for_help else sys.stderr)
    return 0 if asked_for_help else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
