"""Cuts a published Piper graph into Talker and VoiceBox, once per voice file.

Also turns the two random nodes into inputs: `duration_noise` [1, 2, ids] and `frame_noise` [1, C, any], the latter read
in a circle, since the number of frames is only known inside. Needs onnx, nothing at run time does.
"""

from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.utils import Extractor

from voice_agent.errors import WeightsError

LATENT = "/Mul_7_output_0"  # what the decoder's first convolution reads, [1, C, F]
FRAMES_PER_ID = "/Ceil_output_0"  # durations before they are summed up, [1, 1, ids]
_NOISES = {"/dp/RandomNormalLike": ("duration_noise", 2), "/RandomNormalLike": ("frame_noise", 192)}


def cut(source: Path, talker_file: Path, voice_box_file: Path) -> None:
    """Write both parts of a voice; raises WeightsError if it is no Piper voice, OSError if the disk is full."""
    try:
        extractor = Extractor(onnx.load(source))
        talker = extractor.extract_model(["input", "input_lengths", "scales"], [LATENT, FRAMES_PER_ID])
        voice_box = extractor.extract_model([LATENT], ["output"])
    except (DecodeError, ValueError, LookupError) as error:
        raise WeightsError(f"{source.name} is not a Piper voice, or is cut short: {error}") from error
    replaced = _noise_as_input(talker.graph)
    if replaced != len(_NOISES):
        raise WeightsError(f"{source.name} draws its noise in another way than the known Piper graphs")
    onnx.save(talker, talker_file)
    onnx.save(voice_box, voice_box_file)


def _noise_as_input(graph: GraphProto) -> int:
    nodes, replaced = list[NodeProto](), 0
    for node in graph.node:
        name, rows = _NOISES.get(node.name, ("", 0))
        if not name:
            nodes.append(node)
            continue
        graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, rows, None]))
        nodes += _circular_read(graph, name, like=node.input[0], output=node.output[0])
        replaced += 1
    del graph.node[:]
    graph.node.extend(nodes)
    return replaced


def _circular_read(graph: GraphProto, name: str, like: str, output: str) -> list[NodeProto]:
    """Nodes that read as many columns as `like` has from the input `name`, starting over at its end."""
    for label, value in (("zero", 0), ("one", 1), ("two", 2)):
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), f"{name}/{label}"))
    return [
        helper.make_node("Shape", [like], [f"{name}/like"]),
        helper.make_node("Gather", [f"{name}/like", f"{name}/two"], [f"{name}/wanted"], axis=0),
        helper.make_node("Shape", [name], [f"{name}/shape"]),
        helper.make_node("Gather", [f"{name}/shape", f"{name}/two"], [f"{name}/given"], axis=0),
        helper.make_node("Range", [f"{name}/zero", f"{name}/wanted", f"{name}/one"], [f"{name}/count"]),
        helper.make_node("Mod", [f"{name}/count", f"{name}/given"], [f"{name}/index"]),
        helper.make_node("Gather", [name, f"{name}/index"], [output], axis=2),
    ]
