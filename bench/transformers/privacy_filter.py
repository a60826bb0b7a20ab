"""Privacy-filter's decoding, constrained Viterbi with six biases: ours against the procedure in plain Python and in NumPy, on logits of its
architecture with random weights.

    PYTHONPATH=build/python python bench/transformers/privacy_filter.py [--tokens N …] [--json FILE]

Needs PyTorch and transformers. The answers must be equal before anything is timed. A text of more than a thousand tokens goes through the model
in pieces of that size: attention over all of it is not what is measured.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import statistics
import sys
import time

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "python"))
import tiny_models
from procedure import numpy_viterbi, plain_viterbi
from regccrf.transformers import SpanDecoder

BIASES = {"background_stay": 2.0, "background_to_start": -1.5, "end_to_background": 0.7, "end_to_start": -2.0, "inside_to_continue": 1.1,
          "inside_to_end": -0.4}
PIECE = 1000


def logits_of(model, tokens):
    """[tokens, K] of random token ids."""
    ids = torch.tensor(random.Random(0).choices(range(1, 257), k=tokens))
    with torch.no_grad():
        return torch.cat([model(piece[None]).logits[0] for piece in ids.split(PIECE)])


def seconds(call, least=0.5, most=5):
    """Median of a few runs, of processor time: all are of one thread, and the machine may be busy."""
    times = []
    while len(times) < most and (len(times) < 1 or sum(times) < least):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


def measure(model, tokens):
    labels = model.config.id2label
    logits = logits_of(model, tokens)
    logs, scores = logits.double().log_softmax(-1), logits.numpy()
    lists, array = logs.tolist(), logs.numpy()
    decoder = SpanDecoder(labels, biases=BIASES)
    expected = plain_viterbi(lists, labels, BIASES)
    assert decoder.ids(scores) == expected and numpy_viterbi(array, labels, BIASES) == expected
    spans = decoder.spans(scores)
    times = {"plain Python": seconds(lambda: plain_viterbi(lists, labels, BIASES)), "NumPy": seconds(lambda: numpy_viterbi(array, labels, BIASES)),
             "regccrf": seconds(lambda: decoder.ids(scores), most=20),
             "regccrf, spans and probabilities": seconds(lambda: decoder.spans(scores), most=20)}
    return {"tokens": tokens, "spans": len(spans), "seconds": times}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, nargs="+", default=[1000, 128000])
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, _ = tiny_models.privacy_filter(sure=0.5)
    rows = [measure(model, tokens) for tokens in options.tokens]
    print(f"K = {model.config.num_labels}, transformers {transformers.__version__}, PyTorch {torch.__version__}, load {os.getloadavg()[0]:.1f}; "
          "medians of processor time; all answers equal")
    for row in rows:
        slowest = row["seconds"]["plain Python"]
        for name, value in row["seconds"].items():
            print(f"{row['tokens']:7d} tokens, {row['spans']:6d} spans   {name:33s} {value * 1000:10.2f} ms   {slowest / value:6.1f} times as fast")
    if options.json:
        record = {"date": str(datetime.date.today()), "machine": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg(),
                  "command": " ".join(["bench/transformers/privacy_filter.py", *sys.argv[1:]]), "rows": rows}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
