"""A training script as users of pytorch-crf write it: a BiLSTM-CRF on WNUT-17. Only the import of CRF differs.

    python examples/wnut17_bilstm_crf.py --crf pytorch-crf
    python examples/wnut17_bilstm_crf.py --crf regccrf
    python examples/wnut17_bilstm_crf.py --crf regccrf --constraint     # valid spans only, in training and in decoding

Prints one JSON object: the loss of every step, seconds for training and decoding, scores on the development set.
"""

import argparse
import json
import os
import pathlib
import random
import sys
import time

import torch
from torch import nn

DATA = pathlib.Path(os.environ.get("REGCCRF_DATA", pathlib.Path(__file__).resolve().parents[2] / "shared" / "data")) / "ner"
TRAIN, DEV = "wnut17_wnut17train.conll", "wnut17_emerging.dev.conll"

parser = argparse.ArgumentParser()
parser.add_argument("--crf", choices=["pytorch-crf", "regccrf"], default="regccrf")
parser.add_argument("--constraint", action="store_true")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--double", action="store_true", help="float64: rounding no longer moves the loss curve")
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--data", type=pathlib.Path, default=DATA)
options = parser.parse_args()

if options.crf == "pytorch-crf":
    from torchcrf import CRF
else:
    from regccrf.torch import CRF, RegCCRF


def read(path):
    """Sentences of (word, label) pairs."""
    sentences, sentence = [], []
    for line in path.read_text(encoding="utf-8").splitlines() + [""]:
        if line.strip():
            word, label = line.split("\t")[:2]
            sentence.append((word.lower(), label.strip()))
        elif sentence:
            sentences.append(sentence)
            sentence = []
    return sentences


class Tagger(nn.Module):
    def __init__(self, words, labels, constraint=None):
        super().__init__()
        self.embed = nn.Embedding(words, 64, padding_idx=0)
        self.lstm = nn.LSTM(64, 64, batch_first=True, bidirectional=True)
        self.emit = nn.Linear(128, len(labels))
        self.crf = CRF(len(labels), batch_first=True) if constraint is None else RegCCRF(labels, constraint, batch_first=True)

    def emissions(self, x):
        return self.emit(self.lstm(self.embed(x))[0])

    def forward(self, x, y, mask):
        return -self.crf(self.emissions(x), y, mask=mask, reduction="mean")

    def tag(self, x, mask):
        return self.crf.decode(self.emissions(x), mask=mask)


def tensors(sentences, words, labels):
    T = max(map(len, sentences))
    x, y = (torch.zeros(len(sentences), T, dtype=torch.long) for _ in range(2))
    for i, sentence in enumerate(sentences):
        x[i, :len(sentence)] = torch.tensor([words.get(word, 1) for word, _ in sentence])
        y[i, :len(sentence)] = torch.tensor([labels.index(label) for _, label in sentence])
    return x, y, x > 0


def spans(labels):
    """{(first, last, type)} of a label sequence; an I without its head begins a span."""
    found, begin = set(), None
    for t, label in enumerate(list(labels) + ["O"]):
        inside = label.startswith("I-") and t > 0 and labels[t - 1] != "O" and labels[t - 1][2:] == label[2:]
        if begin is not None and not inside:
            found.add((begin, t - 1, labels[begin][2:]))
            begin = None
        if label != "O" and not inside:
            begin = t
    return found


def main():
    if not (options.data / TRAIN).exists():
        sys.exit(f"no WNUT-17 at {options.data}; --data says where it is")
    torch.set_num_threads(options.threads)
    torch.set_default_dtype(torch.float64 if options.double else torch.float32)
    train, dev = read(options.data / TRAIN), read(options.data / DEV)
    labels = sorted({label for sentence in train for _, label in sentence}, key=lambda label: (label[2:], label))
    words = {word: i + 2 for i, word in enumerate(sorted({word for sentence in train for word, _ in sentence}))}
    types = sorted({label[2:] for label in labels if label != "O"})
    bio = "(O | " + " | ".join(f"B-{t} I-{t}*" for t in types) + ")*"

    torch.manual_seed(0)
    random.seed(0)
    model = Tagger(len(words) + 2, labels, bio if options.constraint else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    losses, start = [], time.perf_counter()
    for _ in range(options.steps):
        x, y, mask = tensors(random.sample(train, options.batch), words, labels)
        loss = model(x, y, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    train_seconds = time.perf_counter() - start

    start, predicted = time.perf_counter(), []
    with torch.no_grad():
        for i in range(0, len(dev), 64):
            x, _, mask = tensors(dev[i:i + 64], words, labels)
            predicted += [[labels[a] for a in y] for y in model.tag(x, mask)]
    decode_seconds = time.perf_counter() - start

    gold = [[label for _, label in sentence] for sentence in dev]
    right = sum(len(spans(p) & spans(g)) for p, g in zip(predicted, gold))
    total = sum(len(spans(y)) for y in predicted + gold)
    json.dump({"crf": options.crf, "constraint": options.constraint, "torch": torch.__version__, "threads": options.threads,
               "train_seconds": train_seconds, "decode_seconds": decode_seconds, "f1": 2 * right / max(total, 1), "losses": losses},
              sys.stdout)
    print()


main()
