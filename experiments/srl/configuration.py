"""The named settings of the experiment: which corpus, which languages, how the neural models are trained.

`ewt` is ours: a small encoder on the English Web Treebank. `paper` is what the paper states (its section 7 and
appendix) for OntoNotes: RoBERTa, twelve trials, early stopping on a part of the development set.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DATA = ROOT.parent / "shared" / "data"
sys.path.append(
    str(ROOT / "build" / "python")
)  # where the build leaves the Python package, unless another is found first


@dataclass(frozen=True)
class Configuration:
    name: str
    corpus_format: str
    folder: Path  # of the corpus
    reduced: Path  # Algorithm 1's language; its roles are those of every model but CRF-full
    rich: Path  # the language with continuations and references
    full: Path  # the language of all roles, whose rules are kept beside a base
    encoder: str  # a folder, or a name at Hugging Face
    seeds: int
    epochs: int  # at most
    batch: int  # instances a step
    encoder_rate: float
    head_rate: float  # of projection and transitions
    optimizer: str  # adam, or adamw with warm-up and linear decay
    longest: int  # training instances with so many subtokens or more are left out
    evaluate_every: int = 0  # steps between looks at the development set; 0: never
    patience: int = 0  # looks without improvement, before training ends


CONFIGURATIONS = {
    "ewt": Configuration(
        name="ewt",
        corpus_format="ewt",
        folder=DATA / "srl_ewt",
        reduced=HERE / "languages" / "reduced.lang",
        rich=HERE / "languages" / "rich.lang",
        full=ROOT / "languages" / "srl-full.lang",
        encoder="sentence-transformers/all-MiniLM-L6-v2",
        seeds=5,
        epochs=4,
        batch=64,
        encoder_rate=3e-4,
        head_rate=3e-3,
        optimizer="adamw",
        longest=120,
    ),
    "paper": Configuration(
        name="paper",
        corpus_format="conll2012",
        folder=DATA / "conll-2012",
        reduced=ROOT / "languages" / "srl.lang",
        rich=HERE / "languages" / "rich-ontonotes.lang",
        full=ROOT / "languages" / "srl-full.lang",
        encoder="roberta-base",
        seeds=12,
        epochs=1000,
        batch=8,
        encoder_rate=1e-5,
        head_rate=1e-5,
        optimizer="adam",
        longest=120,
        evaluate_every=5000,
        patience=50,
    ),
}
