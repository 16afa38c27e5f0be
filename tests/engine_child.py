"""The engine's own child entry, with tests/engine_models.py in the place of the `scripted` family."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import engine_models  # noqa: E402

from voice_agent.engine import child  # noqa: E402

if __name__ == "__main__":
    sys.modules["voice_agent.models.scripted"] = engine_models
    child.main(sys.argv[1:])
