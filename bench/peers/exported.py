"""What `bench/step --export` wrote, for the peers: weights by HuggingFace's names, config and tokens."""

import json
import struct

import numpy


def read_weights(folder):
    """The float32 tensors of model.safetensors, by name, without the leading "transformer."."""
    data = (folder / "model.safetensors").read_bytes()
    (header_bytes,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + header_bytes])
    weights = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        first, last = (8 + header_bytes + offset for offset in entry["data_offsets"])
        values = numpy.frombuffer(data[first:last], dtype="<f4").reshape(entry["shape"])
        weights[name.removeprefix("transformer.")] = values.copy()
    return weights


def read_config(folder):
    return json.loads((folder / "config.json").read_text())


def read_tokens(folder):
    return numpy.fromfile(folder / "tokens.u16", dtype="<u2")
