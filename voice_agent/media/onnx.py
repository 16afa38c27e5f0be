"""How this room opens ONNX files: in the calling thread, without threads that spin beside the event loop."""

from pathlib import Path

from onnxruntime import InferenceSession, SessionOptions  # pyright: ignore[reportAttributeAccessIssue]
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    RuntimeException,
)
from onnxruntime.capi.onnxruntime_pybind11_state import (
    NotImplemented as NotSupported,
)

from voice_agent.errors import WeightsError

RUN_ERRORS = (Fail, InvalidArgument, RuntimeException)  # what a run raises, whatever was wrong


def load_session(path: Path) -> InferenceSession:
    """Open a file; each run is its caller's thread's own. Raises WeightsError if it is missing, cut, or not ONNX."""
    options = SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not path.is_file():
        raise WeightsError(f"There is no weights file at {path}.")
    try:
        return InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except (Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile, NotSupported) as error:
        raise WeightsError(f"{path} is no whole ONNX file.") from error
