"""`voice-agent bench WHAT`: which measurement, then its own options."""

import sys
from collections.abc import Sequence

USAGE = """usage: voice-agent bench {turn,speech,endpoint} [options]

  turn    voice-to-voice, stop and cancel latency of a running server (voice-agent bench turn --help);
          with --set also what it does about barge-ins, sounds of listening, noises and pauses
  speech  first sound, gaps and capacity of a speech route under load, ours or another server's
  endpoint
          how the end of turn's knobs trade false cut-offs against waiting; needs no server"""


def main(argv: Sequence[str]) -> int:
    """Run the named bench with the rest of the command line; returns its exit status."""
    if argv[:1] == ["turn"]:
        from voice_agent.bench.turn import main as turn

        return turn(argv[1:])
    if argv[:1] == ["speech"]:
        from voice_agent.bench.speech import main as speech

        return speech(argv[1:])
    if argv[:1] == ["endpoint"]:
        from voice_agent.bench.endpoint import main as endpoint

        return endpoint(argv[1:])
    asked_for_help = argv[:1] in (["-h"], ["--help"])
    print(USAGE, file=sys.stdout if asked_for_help else sys.stderr)
    return 0 if asked_for_help else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
