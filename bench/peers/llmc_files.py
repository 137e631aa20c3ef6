"""llm.c's own files for the weights and tokens that `bench/step --export` wrote: llmc_files.py FOLDER LLMC_FOLDER.

The checkpoint (version 3) holds all tensors as float32, those of equal kind of all layers one behind the other, matrices as
[out, in], and the vocabulary padded to a multiple of 128. Training and validation read the same tokens.
"""

import sys
from pathlib import Path

import numpy

from exported import read_config, read_tokens, read_weights

# In the order of llm.c's ParameterTensors, between the tables and the last norm; matrices are turned.
PARTS = (
    ("ln_1.weight", False),
    ("ln_1.bias", False),
    ("attn.c_attn.weight", True),
    ("attn.c_attn.bias", False),
    ("attn.c_proj.weight", True),
    ("attn.c_proj.bias", False),
    ("ln_2.weight", False),
    ("ln_2.bias", False),
    ("mlp.c_fc.weight", True),
    ("mlp.c_fc.bias", False),
    ("mlp.c_proj.weight", True),
    ("mlp.c_proj.bias", False),
)


def header(*fields):
    numbers = numpy.zeros(256, dtype="<i4")
    numbers[: len(fields)] = fields
    return numbers.tobytes()


def write_checkpoint(path, weights, config):
    vocabulary, width = weights["wte.weight"].shape
    padded = (vocabulary + 127) // 128 * 128
    sizes = (config["n_positions"], vocabulary, config["n_layer"], config["n_head"], width, padded)
    table = numpy.zeros((padded, width), dtype="<f4")
    table[:vocabulary] = weights["wte.weight"]
    with path.open("wb") as file:
        file.write(header(20240326, 3, *sizes))
        file.write(table.tobytes())
        file.write(weights["wpe.weight"].tobytes())
        for part, turned in PARTS:
            for layer in range(config["n_layer"]):
                values = weights[f"h.{layer}.{part}"]
                file.write((values.T if turned else values).tobytes())
        file.write(weights["ln_f.weight"].tobytes())
        file.write(weights["ln_f.bias"].tobytes())


def write_tokens(folder, tokens):
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "val"):
        path = folder / f"tiny_shakespeare_{part}.bin"
        path.write_bytes(header(20240520, 1, len(tokens)) + tokens.tobytes())


def main():
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    write_checkpoint(target / "gpt2_124M.bin", read_weights(source), read_config(source))
    write_tokens(target / "dev/data/tinyshakespeare", read_tokens(source))


if __name__ == "__main__":
    main()
