"""Fine-tunes an encoder of Hugging Face as a token classifier whose loss and answers know which label sequences are legal.

    python examples/train_token_classifier.py ENCODER --train train.conll --dev dev.conll --output FOLDER
    python examples/train_token_classifier.py ENCODER … --constraint "(O | B-PER I-PER*)* & at_most(3, B-PER)"

ENCODER is a folder or a name on the hub. Files have a word and its label in the first and last column, and an empty line after each sentence.
Prints one JSON object: loss, precision, recall, F1 and accuracy on the development set. FOLDER then holds the model and its tokenizer:
`constrain(FOLDER, aggregation_strategy="first")` of regccrf.transformers reads them.
"""

import argparse
import json
import pathlib

from transformers import AutoTokenizer, DataCollatorForTokenClassification, Trainer, TrainingArguments

from regccrf.transformers import RegCCRFForTokenClassification

parser = argparse.ArgumentParser()
parser.add_argument("encoder")
parser.add_argument("--train", type=pathlib.Path, required=True)
parser.add_argument("--dev", type=pathlib.Path, required=True)
parser.add_argument("--output", type=pathlib.Path, required=True)
parser.add_argument("--constraint", default="auto", help="a pattern over the labels; without it, what their scheme can spell")
parser.add_argument("--outside", choices=["raise", "skip"], default="raise", help="illegal labels in the data: an error, or left out")
parser.add_argument("--epochs", type=float, default=3)
parser.add_argument("--rate", type=float, default=5e-5)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--cpu", action="store_true")
options = parser.parse_args()


def read(path):
    """Sentences of (word, label) pairs."""
    blocks = path.read_text(encoding="utf-8").split("\n\n")
    rows = [[line.split() for line in block.splitlines() if line.strip()] for block in blocks]
    return [[(row[0], row[-1]) for row in sentence] for sentence in rows if sentence]


def encode(sentence):
    """Token ids; a word's label at its first token, −100 elsewhere."""
    encoded = tokenizer([word for word, _ in sentence], is_split_into_words=True, truncation=True)
    previous, gold = None, []
    for word in encoded.word_ids():
        gold.append(-100 if word is None or word == previous else labels.index(sentence[word][1]))
        previous = word
    return {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"], "labels": gold}


train, dev = read(options.train), read(options.dev)
labels = sorted({label for sentence in train + dev for _, label in sentence})
tokenizer = AutoTokenizer.from_pretrained(options.encoder)
model = RegCCRFForTokenClassification.from_pretrained(options.encoder, labels=labels, constraint=options.constraint, outside=options.outside)
arguments = TrainingArguments(output_dir=str(options.output), num_train_epochs=options.epochs, learning_rate=options.rate, report_to=[],
                              per_device_train_batch_size=options.batch, save_strategy="no", logging_strategy="no", disable_tqdm=True,
                              use_cpu=options.cpu)
trainer = Trainer(model=model, args=arguments, train_dataset=[encode(sentence) for sentence in train],
                  eval_dataset=[encode(sentence) for sentence in dev], data_collator=DataCollatorForTokenClassification(tokenizer),
                  compute_metrics=model.compute_metrics)
trainer.train()
scores = trainer.evaluate()
trainer.save_model()
tokenizer.save_pretrained(options.output)
print(json.dumps({name: round(scores[f"eval_{name}"], 4) for name in ("loss", "precision", "recall", "f1", "accuracy")}))
