"""Token classifiers of Hugging Face's transformers under a language.

`constrain` takes a token-classification pipeline and returns one that is used in the same way, and whose answers are all legal. The model
need not be trained for this:

    ner = constrain(pipeline("token-classification", model=…, aggregation_strategy="simple"))
    ner("My name is Ada Lovelace")      # [{"entity_group": "PER", "score": 0.98, "word": "Ada Lovelace", "start": 11, "end": 23}]

A score is an exact probability: that exactly this span (or this label, without aggregation) is there, given that the labels are legal.
`SpanDecoder` does the same on logits. `RegCCRFForTokenClassification` is a model with the constraint in its loss, over any encoder.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

try:
    import torch
    import transformers
except ModuleNotFoundError as error:
    if error.name not in ("torch", "transformers"):
        raise
    raise ModuleNotFoundError(f"regccrf.transformers needs {error.name}: pip install regccrf[transformers]", name=error.name) from None

from transformers import AutoTokenizer, Pipeline, PreTrainedModel, TokenClassificationPipeline
from transformers.pipelines.token_classification import AggregationStrategy

from . import LanguageLike, _core
from ._core import Language
from ._decoder import FoundSpan, LabelNames, SpanDecoder, label_names
from ._scheme import Scheme
from ._transformers_model import RegCCRFConfig, RegCCRFForTokenClassification, RegCCRFOutput

__all__ = ["ConstrainedPipeline", "FoundSpan", "RegCCRFConfig", "RegCCRFForTokenClassification", "RegCCRFOutput", "SpanDecoder", "constrain",
           "scheme_language", "word_mask"]

_OF_WORDS = (AggregationStrategy.FIRST, AggregationStrategy.AVERAGE, AggregationStrategy.MAX)
Entity = Dict[str, Any]


def scheme_language(labels: LabelNames, scheme: Optional[str] = None) -> Language:
    """The language that "auto" means: every label sequence that is legal in the scheme of the labels.

    >>> scheme_language(["O", "B-PER", "I-PER"]).text
    '("O" | "B-PER" "I-PER"*)*'
    """
    return Scheme(label_names(labels), scheme).language()


def constrain(pipeline: Any, language: LanguageLike = "auto", *, scheme: Optional[str] = None, biases: Optional[Mapping[str, float]] = None,
              probabilities: bool = True, tokenizer: Any = None, **parameters: Any) -> ConstrainedPipeline:
    """A token-classification pipeline whose answers are legal.

    Args:
        pipeline: a `TokenClassificationPipeline`, which is not changed; or a model, or the name or folder of one, with its tokenizer.
        language, scheme, biases, probabilities: as for `SpanDecoder`. With "auto", a `RegCCRFForTokenClassification` uses its own language and
            transition scores.
        tokenizer: needed if the model was not loaded from a folder that has one.
        parameters: those of the pipeline, such as `aggregation_strategy`, `stride` and `ignore_labels`, to change them.

    `aggregation_strategy` says what a position is. It is a token for `none` and `simple`, and a word for `first`, `average` and `max`. The
    probabilities of a word are those of its first token, their mean over its tokens, or those of the token with the highest probability. With
    `stride` a long text goes through the model in windows. It is still decoded as a whole.
    """
    found = _as_constrained(pipeline, tokenizer, parameters)
    found.decoder = _decoder(found.model, language, scheme, biases, probabilities)
    return found


def word_mask(encoding: Any) -> torch.Tensor:
    """[B, T], True at the first token of each word: the mask of a text without labels, from the result of a fast tokenizer.

    `model(**encoding, word_mask=word_mask(encoding)).predictions` has a label for each word.
    """
    rows = [encoding.word_ids(i) for i in range(len(encoding["input_ids"]))]
    return torch.tensor([[word is not None and (t == 0 or word != row[t - 1]) for t, word in enumerate(row)] for row in rows])


class ConstrainedPipeline(TokenClassificationPipeline):
    """What `constrain` gives. `decoder` is its `SpanDecoder`."""

    decoder: SpanDecoder

    def check_model_type(self, supported_models: Any) -> None:
        return  # any model with logits will do

    def _sanitize_parameters(self, stride: Optional[int] = None, **parameters: Any) -> Tuple[Entity, Entity, Entity]:
        before, forward, after = super()._sanitize_parameters(stride=stride, **parameters)
        return before, forward, after if stride is None else {**after, "stride": stride}

    def postprocess(self, all_outputs: Sequence[Entity], aggregation_strategy: Any = AggregationStrategy.NONE,
                    ignore_labels: Optional[Sequence[str]] = None, stride: int = 0) -> List[Entity]:
        ignored = ["O"] if ignore_labels is None else list(ignore_labels)
        tokens, logits = self._whole_text(all_outputs, aggregation_strategy, stride)
        if not tokens:
            return []
        if aggregation_strategy == AggregationStrategy.NONE:
            return self._labelled_tokens(tokens, logits, ignored)
        if aggregation_strategy in _OF_WORDS:
            tokens, logits = self._words(tokens, logits, aggregation_strategy)
        return self._spans(tokens, logits, ignored)

    def _whole_text(self, windows: Sequence[Entity], strategy: Any, stride: int) -> Tuple[List[Entity], np.ndarray]:
        """The tokens of the text and their logits [T, K]. Where two windows overlap, each serves for its half, where it sees more of the text."""
        tokens: List[Entity] = []
        logits: List[np.ndarray] = []
        previous: List[Entity] = []
        for i, window in enumerate(windows):
            some, scores = self._window(windows[0], window, strategy)
            if i > 0:
                _check_overlap(previous, some, stride)
            begin = stride // 2 if i > 0 else 0
            end = len(some) - (stride - stride // 2 if i + 1 < len(windows) else 0)
            tokens += some[begin:end]
            logits.append(scores[begin:end])
            previous = some
        return tokens, np.concatenate(logits)

    def _window(self, first: Entity, window: Entity, strategy: Any) -> Tuple[List[Entity], np.ndarray]:
        logits = window["logits"][0]
        logits = (logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits).numpy()
        special = window["special_tokens_mask"][0].numpy()
        offsets = window["offset_mapping"]
        words = {"word_ids": window["word_ids"], "word_to_chars_map": first["word_to_chars_map"]} if window.get("word_ids") is not None else {}
        tokens = self.gather_pre_entities(first["sentence"], window["input_ids"][0], logits, None if offsets is None else offsets[0], special,
                                          strategy, **words)
        return tokens, logits[special == 0]

    def _words(self, tokens: List[Entity], logits: np.ndarray, strategy: Any) -> Tuple[List[Entity], np.ndarray]:
        """The words, each from its tokens, and the logs of their label probabilities."""
        begins = [t for t, token in enumerate(tokens) if t == 0 or not token["is_subword"]]
        groups = [tokens[begin:end] for begin, end in zip(begins, begins[1:] + [len(tokens)])]
        words = [{"word": self.tokenizer.convert_tokens_to_string([token["word"] for token in group]), "start": group[0]["start"],
                  "end": group[-1]["end"]} for group in groups]
        logs = logits - np.logaddexp.reduce(logits.astype(np.float64), axis=1, keepdims=True)
        if strategy == AggregationStrategy.AVERAGE:
            return words, np.logaddexp.reduceat(logs, begins, axis=0) - np.log([[len(group)] for group in groups])
        if strategy == AggregationStrategy.MAX:
            surest = logs.max(axis=1)
            begins = [begin + int(surest[begin:begin + len(group)].argmax()) for begin, group in zip(begins, groups)]
        return words, logs[begins]

    def _labelled_tokens(self, tokens: List[Entity], scores: np.ndarray, ignored: List[str]) -> List[Entity]:
        ids = self.decoder.ids(scores)
        labels = self.decoder.scheme.labels.names(ids)
        return [{"entity": label, "score": _number(p), "index": token["index"], "word": token["word"], "start": token["start"], "end": token["end"]}
                for token, label, p in zip(tokens, labels, self.decoder.label_probabilities(scores, ids)) if label not in ignored]

    def _spans(self, tokens: List[Entity], scores: np.ndarray, ignored: List[str]) -> List[Entity]:
        ids = self.decoder.ids(scores)
        spans = [span for span in self.decoder.scheme.spans(ids) if (span.type or self.decoder.labels[ids[span.begin]]) not in ignored]
        return [{"entity_group": span.type or self.decoder.labels[ids[span.begin]], "score": _number(p),
                 "word": self.tokenizer.convert_tokens_to_string([token["word"] for token in tokens[span.begin:span.end]]),
                 "start": tokens[span.begin]["start"], "end": tokens[span.end - 1]["end"]}
                for span, p in zip(spans, self.decoder.span_probabilities(scores, ids, spans))]


def _check_overlap(before: List[Entity], now: List[Entity], stride: int) -> None:
    """Windows go from left to right, and share `stride` tokens."""
    places = [(token["start"], token["end"]) for token in before[len(before) - stride:]]
    if len(places) != stride or places != [(token["start"], token["end"]) for token in now[:stride]]:
        raise _core.Error(f"two windows of the text do not share {stride} tokens: set tokenizer.truncation_side to 'right', and stride to less than "
                          "what is left of model_max_length without special tokens")


def _number(probability: Optional[float]) -> Optional[np.float64]:
    """As pipelines give it, a NumPy number; this one is a Python float too, which json writes."""
    return None if probability is None else np.float64(probability)


def _as_constrained(pipeline: Any, tokenizer: Any, parameters: Entity) -> ConstrainedPipeline:
    if isinstance(pipeline, (str, os.PathLike)):
        pipeline = transformers.pipeline("token-classification", model=os.fspath(pipeline), tokenizer=tokenizer)
    if isinstance(pipeline, PreTrainedModel):
        return ConstrainedPipeline(model=pipeline, tokenizer=_tokenizer_of(pipeline, tokenizer), task="token-classification", **parameters)
    if not isinstance(pipeline, TokenClassificationPipeline):
        what = f"a pipeline for {pipeline.task}" if isinstance(pipeline, Pipeline) else f"a {type(pipeline).__name__}"
        raise TypeError(f"constrain was given {what}, expected a token-classification pipeline or a model")
    found = ConstrainedPipeline.__new__(ConstrainedPipeline)
    found.__dict__.update(pipeline.__dict__)
    stride = pipeline._preprocess_params.get("tokenizer_params", {}).get("stride")
    before, forward, after = found._sanitize_parameters(**parameters)
    found._preprocess_params = {**pipeline._preprocess_params, **before}
    found._forward_params = {**pipeline._forward_params, **forward}
    found._postprocess_params = {**pipeline._postprocess_params, **({} if stride is None else {"stride": stride}), **after}
    return found


def _tokenizer_of(model: Any, tokenizer: Any) -> Any:
    if tokenizer is not None and not isinstance(tokenizer, str):
        return tokenizer
    name = tokenizer or model.config._name_or_path
    if not name:
        raise _core.Error("a model that was not loaded from a folder or a hub has no tokenizer: constrain(model, tokenizer=…)")
    return AutoTokenizer.from_pretrained(name)


def _decoder(model: Any, language: LanguageLike, scheme: Optional[str], biases: Optional[Mapping[str, float]], probabilities: bool) -> SpanDecoder:
    crf: Any = model.crf if isinstance(model, RegCCRFForTokenClassification) else None
    if crf is not None and isinstance(language, str) and language == "auto":
        language = crf.constraint
    decoder = SpanDecoder(model.config.id2label, language, scheme=scheme, biases=biases, probabilities=probabilities)
    if crf is not None:
        decoder.transitions = decoder.transitions + _array(crf.transitions)
        decoder.start, decoder.end = _array(crf.start_transitions), _array(crf.end_transitions)
    return decoder


def _array(scores: Any) -> Any:
    return None if scores is None else scores.detach().cpu().double().numpy()
