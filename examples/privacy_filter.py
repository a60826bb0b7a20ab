"""Hides personal data in a text: a privacy-filter model, decoded by constrained Viterbi with its six transition biases.

    python examples/privacy_filter.py MODEL FILE
    python examples/privacy_filter.py MODEL FILE --bias background_to_start=1.5 --bias end_to_start=-1     # more spans, fewer side by side
    python examples/privacy_filter.py MODEL FILE --calibration viterbi_calibration.json --least 0.5 --json

Without --json the text is printed with each span as [TYPE]; with it, a line for each span: type, place, probability. --least leaves out spans
that are less likely than that.
"""

import argparse
import json
import pathlib
import sys

from transformers import pipeline

from regccrf.transformers import constrain


def bias(text):
    name, _, value = text.partition("=")
    return name, float(value)


parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("file", type=pathlib.Path)
parser.add_argument("--bias", type=bias, action="append", default=[], metavar="NAME=NUMBER")
parser.add_argument("--calibration", type=pathlib.Path, help="a model's viterbi_calibration.json")
parser.add_argument("--least", type=float, default=0.0, metavar="PROBABILITY")
parser.add_argument("--json", action="store_true")
options = parser.parse_args()

biases = json.loads(options.calibration.read_text())["operating_points"]["default"]["biases"] if options.calibration else {}
biases.update(options.bias)
find = constrain(pipeline("token-classification", model=options.model, aggregation_strategy="simple"), biases=biases)
text = options.file.read_text(encoding="utf-8")
spans = [span for span in find(text) if span["score"] >= options.least]
if options.json:
    for span in spans:
        print(json.dumps({"type": span["entity_group"], "start": span["start"], "end": span["end"], "probability": span["score"]}))
    sys.exit()
end = 0
for span in spans:
    sys.stdout.write(text[end:span["start"]] + f"[{span['entity_group']}]")
    end = span["end"]
sys.stdout.write(text[end:])
