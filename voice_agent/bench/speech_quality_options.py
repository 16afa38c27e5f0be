"""`voice-agent bench speech --quality` on its command line; what it runs (speech_quality) imports torch."""

import shlex
from collections.abc import Sequence

from voice_agent.bench import arguments

NAME = "bench speech --quality"


def main(argv: Sequence[str]) -> int:
    """Run with what stands beside --quality; 2 if the command or the weights are wrong, or torch is missing."""
    parser = arguments.parser(f"voice-agent {NAME}", "latency first against quality first, by chunk size")
    add, count = parser.add_argument, arguments.whole(1)
    add("--size", choices=("tiny", "0.6b", "1.7b"), default="tiny", help="of random weights")
    add("--folder", default="", help="a Qwen3-TTS checkpoint instead")
    add("--chunks", type=count, nargs="+", default=[4, 8, 16], help="frames of 80 ms")
    add("--frames", type=count, default=64, help="most frames of a reply")
    add("--replies", type=count, default=5, help="of each way, after one that warms up")
    add("--plain-codec", action="store_true", help="not by Triton kernels, even if they prove right here")
    add("--json", type=arguments.file_to_write, help="write the report to this file")
    options = parser.parse_args(argv)
    if arguments.lacks(NAME, "torch"):
        return 2
    from voice_agent.bench.speech_quality import run

    return run(options, shlex.join(["voice-agent", *NAME.split(), *argv]))
