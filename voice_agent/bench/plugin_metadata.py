"""Lets vLLM find our plugin where the source lies in a folder and no package is installed.

vLLM's processes look for the entry point `vllm.general_plugins`, which is read from a distribution's metadata. On a
host without a registry there is none, so the least of it is written to a folder that goes on their PYTHONPATH.
"""

import atexit
import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

GROUP, NAME, TARGET = "vllm.general_plugins", "voice_agent", "voice_agent.models.vllm_plugin:register"


def with_plugin() -> dict[str, str]:
    """Environment under which a child and its children find the plugin; empty if they do anyway."""
    if metadata.entry_points(group=GROUP, name=NAME):
        return {}
    folder = Path(tempfile.mkdtemp(prefix="voice-agent-plugin-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    info = folder / "voice_agent-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: voice-agent\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{NAME} = {TARGET}\n")
    above = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [above, str(folder)]))}
