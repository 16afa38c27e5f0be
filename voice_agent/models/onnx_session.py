"""How this room opens ONNX files."""

from pathlib import Path

import onnxruntime as ort

from voice_agent.errors import WeightsError


def open_session(path: Path, threads: int) -> ort.InferenceSession:
    """A model on so many threads that sleep, not spin, between calls: the cores are shared with the LLM.

    Raises WeightsError.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - onnxruntime raises classes of its own, made at run time
        raise WeightsError(f"{path.name} cannot be loaded: {error}") from error
