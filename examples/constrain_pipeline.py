"""A token classifier of Hugging Face under a language, without training: the pipeline's own answer, and the legal one with exact probabilities.

    python examples/constrain_pipeline.py MODEL "Ada Lovelace met Alan Turing in London."
    python examples/constrain_pipeline.py MODEL TEXT … --aggregation first --language "(O | B-PER I-PER*)*"

MODEL is a folder or a name on the hub.
"""

import argparse

from transformers import pipeline

from regccrf.transformers import constrain

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("texts", nargs="+", metavar="TEXT")
parser.add_argument("--aggregation", default="simple", choices=["none", "simple", "first", "average", "max"])
parser.add_argument("--language", default="auto", help="a pattern over the model's labels; without it, what their scheme can spell")
options = parser.parse_args()

theirs = pipeline("token-classification", model=options.model, aggregation_strategy=options.aggregation)
ours = constrain(theirs, options.language)
print(f"labels are {ours.decoder.scheme.name}, types {' '.join(ours.decoder.scheme.types) or 'none'}")
for text in options.texts:
    for name, ner in (("pipeline", theirs), ("constrained", ours)):
        found = [f"{x.get('entity_group', x.get('entity'))} {text[x['start']:x['end']]!r} {x['score']:.3f}" for x in ner(text)]
        print(f"{name:12s}", " | ".join(found) or "nothing")
