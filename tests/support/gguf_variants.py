"""Re-encode the weights of a GGUF file: SOURCE TARGET KIND, where KIND is q8_0 or q4_0.

Run by `support.real_ollama` with an interpreter that has the `gguf` package; nothing of ours
imports it.
"""

import sys
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize, quantize


def main(source: Path, target: Path, kind: str) -> None:
    encoding = gguf.GGMLQuantizationType[kind.upper()]
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    unfinished = target.with_suffix(".part")
    writer = gguf.GGUFWriter(str(unfinished), architecture)
    copy_fields(reader, writer, kind)
    for tensor in reader.tensors:
        weights = as_floats(tensor)
        if weights.ndim == 1:  # norms stay exact, as in every quantised model
            writer.add_tensor(tensor.name, weights)
        else:
            writer.add_tensor(tensor.name, quantize(weights, encoding), raw_dtype=encoding)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.rename(target)


def copy_fields(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, kind: str) -> None:
    file_type = int(gguf.LlamaFileType[f"MOSTLY_{kind.upper()}"])
    changed = {"general.file_type": file_type}
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue  # the writer sets them itself
        array = field.types[0] == gguf.GGUFValueType.ARRAY
        value = changed.get(field.name, field.contents())
        inner = field.types[-1] if array else None
        writer.add_key_value(field.name, value, field.types[0], sub_type=inner)


def as_floats(tensor: gguf.ReaderTensor) -> np.ndarray:
    if tensor.tensor_type == gguf.GGMLQuantizationType.F32:
        return np.asarray(tensor.data, np.float32)
    return dequantize(tensor.data, tensor.tensor_type).astype(np.float32)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
