"""`python -m voice_agent.bench.speech_stages`: the GPU speech engine's stages one by one, on random weights.

Needs torch, triton, numpy and msgspec, and a GPU; no weights, no server. Checks every Triton kernel against its plain
twin, then times matrices by tile, the frame graph by batch and variant, the codec by (frames, batch), and both at
once. Each part that fails is told and the next one runs. Prints tables; `--json` writes everything.
"""

import sys
from collections.abc import Sequence

from voice_agent.bench import arguments

NAME = "speech_stages"
PARTS = ("check", "tiles", "frames", "codec", "overlap", "fused", "first")


def main(argv: Sequence[str]) -> int:
    """Run all parts; 1 if a kernel is wrong or a part failed, 2 if nothing can be measured here."""
    parser = arguments.parser(f"python -m voice_agent.bench.{NAME}", (__doc__ or "").split("\n")[0])
    parser.add_argument("--json", type=arguments.file_to_write, help="write everything here")
    parser.add_argument("--no-sweep", action="store_true", help="neither all shapes nor the matrices by tile")
    parts = arguments.several(arguments.one_of(*PARTS))
    default = ["check", "frames", "codec", "overlap"]
    parser.add_argument("--parts", type=parts, default=default, help=f"by comma, of {', '.join(PARTS)}")
    options = parser.parse_args(argv)
    if arguments.lacks(NAME, "torch", "triton"):
        return 2
    from voice_agent.bench.stage_parts import run

    return run(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
