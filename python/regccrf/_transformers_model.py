"""`RegCCRFForTokenClassification`: an encoder of transformers, a linear layer and a `RegCCRF`, as a model of transformers. It is saved, loaded,
trained and evaluated as any other; the constraint is kept in its config."""

from __future__ import annotations

import base64
import inspect
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForTokenClassification, PretrainedConfig, PreTrainedModel
from transformers.utils import ModelOutput

from . import LanguageLike, _core, compile
from ._core import Constraint
from ._decoder import label_names
from ._scheme import Found, Scheme
from .torch import RegCCRF

_COMPILED = "base64:"  # before the bytes of a constraint that was not given as a pattern
_ABSENT = -100  # as a label: a position that has none
_HUB = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token", "trust_remote_code")
_OWN = ("labels", "id2label", "label2id", "constraint", "scheme", "start_end", "outside", "classifier_dropout")


class RegCCRFConfig(PretrainedConfig):
    """The config of a `RegCCRFForTokenClassification`.

    Args:
        encoder: the encoder's config, or its dict.
        constraint: "auto" for everything that is legal in the scheme of the labels; or a pattern, a path to a .lang file, a `Language`, a
            `Constraint`. Patterns are saved as text, everything else compiled.
        scheme: how labels make spans, for "auto" and for `compute_metrics`. The default follows from the labels.
        start_end, outside: as for `RegCCRF`.
        classifier_dropout: dropout before the linear layer. The default is that of the encoder, or 0.1.
        kwargs: those of a config of transformers, such as `id2label`.
    """

    model_type = "regccrf"

    def __init__(self, encoder: Any = None, constraint: LanguageLike = "auto", scheme: Optional[str] = None, start_end: bool = True,
                 outside: str = "raise", classifier_dropout: Optional[float] = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if isinstance(encoder, Mapping):
            encoder = AutoConfig.for_model(**encoder)
        self.encoder, self.scheme, self.start_end, self.outside = encoder, scheme, start_end, outside
        self.classifier_dropout = classifier_dropout
        self.constraint = _written(constraint, label_names(self.id2label))

    def compiled(self) -> Constraint:
        """The constraint, with the labels of the config."""
        names = label_names(self.id2label)
        if self.constraint == "auto":
            return compile(Scheme(names, self.scheme).language(), names)
        if self.constraint.startswith(_COMPILED):
            return compile(Constraint.from_bytes(base64.b64decode(self.constraint[len(_COMPILED):])), names)
        return compile(self.constraint, names)


@dataclass
class RegCCRFOutput(ModelOutput):
    """loss; logits [B, T, K], the emissions; predictions [B, T], label ids of the best legal sequence, −100 at positions without a label.
    Predictions are made outside of training, if there are labels or a mask."""

    loss: Optional[Tensor] = None
    logits: Optional[Tensor] = None
    predictions: Optional[Tensor] = None
    hidden_states: Optional[Tuple[Tensor, ...]] = None
    attentions: Optional[Tuple[Tensor, ...]] = None


class RegCCRFForTokenClassification(PreTrainedModel):
    """A token classifier that is trained under a constraint, over any encoder.

    `from_pretrained` loads a model that `save_pretrained` saved. With the name or folder of another model, it takes the encoder of that model
    and adds a new head: `from_pretrained("bert-base-cased", labels=["O", "B-PER", "I-PER"])`, with the arguments of `RegCCRFConfig`.
    """

    config_class = RegCCRFConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True

    def __init__(self, config: RegCCRFConfig, encoder: Any = None) -> None:
        super().__init__(config)
        if config.encoder is None:
            raise _core.Error("the config has no encoder: RegCCRFConfig(encoder=…), or RegCCRFForTokenClassification.from_pretrained")
        self.encoder = _without_pooler(AutoModel.from_config(config.encoder) if encoder is None else encoder)
        self.dropout = nn.Dropout(_dropout(config))
        self.classifier = nn.Linear(config.encoder.get_text_config().hidden_size, config.num_labels)
        self.crf = RegCCRF(label_names(config.id2label), config.compiled(), batch_first=True, start_end=config.start_end, outside=config.outside)
        if encoder is not None:  # its weights are there: post_init is not to draw them anew
            for module in encoder.modules():
                module._is_hf_initialized = True
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """transformers calls it for what a checkpoint does not hold: this is where the head of a headless one gets its weights."""
        if isinstance(module, RegCCRF):
            module.reset_parameters()
        elif module is self.classifier:
            nn.init.normal_(module.weight, 0.0, getattr(self.config.encoder.get_text_config(), "initializer_range", 0.02))
            nn.init.zeros_(module.bias)

    @classmethod
    def from_encoder(cls, encoder: Any, labels: Optional[Union[Sequence[str], Mapping[int, str]]] = None,
                     **config: Any) -> RegCCRFForTokenClassification:
        """A new head over an encoder that is already loaded. `config`: as for `RegCCRFConfig`."""
        if labels is not None:
            config["id2label"] = dict(enumerate(label_names(labels)))
        if config.get("id2label") is None and config.get("label2id") is None:
            raise _core.Error("a new head needs labels=[…], their names in the order of their ids")
        id2label = {int(i): name for i, name in (config.pop("id2label", None) or {i: name for name, i in config["label2id"].items()}).items()}
        config["label2id"] = {name: i for i, name in id2label.items()}
        model = cls(RegCCRFConfig(encoder=encoder.config, id2label=id2label, **config), encoder)
        return model.eval()

    @classmethod
    def from_pretrained(cls, name: Any, *args: Any, **kwargs: Any) -> Any:
        config = kwargs.get("config")
        if config is None:
            config = AutoConfig.from_pretrained(name, **{key: kwargs[key] for key in _HUB if key in kwargs})
        if isinstance(config, RegCCRFConfig):
            if "constraint" in kwargs:  # another one around the same weights
                kwargs["constraint"] = _written(kwargs["constraint"], label_names(config.id2label))
            return super().from_pretrained(name, *args, **kwargs)
        own = {key: kwargs.pop(key) for key in _OWN if key in kwargs}
        return cls.from_encoder(AutoModel.from_pretrained(name, *args, **kwargs), **own)

    def get_input_embeddings(self) -> Any:
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: Any) -> None:
        self.encoder.set_input_embeddings(value)

    def forward(self, input_ids: Optional[Tensor] = None, attention_mask: Optional[Tensor] = None, token_type_ids: Optional[Tensor] = None,
                position_ids: Optional[Tensor] = None, inputs_embeds: Optional[Tensor] = None, labels: Optional[Tensor] = None,
                word_mask: Optional[Tensor] = None, num_items_in_batch: Any = None, return_dict: Optional[bool] = None, **kwargs: Any) -> Any:
        """Scores of labels; with `labels` the loss; outside of training the best legal sequence.

        Args:
            labels: [B, T] label ids; −100 for positions without a label: padding, special tokens, all tokens of a word but the first.
            word_mask: [B, T], which positions have a label. Needed if `labels` is not given.
            num_items_in_batch: the number by which `Trainer` divides a sum over several batches.
            others: those of the encoder.
        """
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids, "position_ids": position_ids,
                  "inputs_embeds": inputs_embeds}
        encoded = self.encoder(**{key: value for key, value in inputs.items() if value is not None}, **kwargs)
        logits = self.classifier(self.dropout(encoded.last_hidden_state))
        mask = labels != _ABSENT if labels is not None else word_mask
        output = RegCCRFOutput(logits=logits, hidden_states=encoded.get("hidden_states"), attentions=encoded.get("attentions"))
        if labels is not None:
            output["loss"] = self._loss(logits, labels, mask, num_items_in_batch)
        if mask is not None and not self.training:
            output["predictions"] = self._predictions(logits, mask)
        output = RegCCRFOutput(**output)  # in the order of its fields
        return output.to_tuple() if return_dict is False else output

    def _loss(self, logits: Tensor, labels: Tensor, mask: Any, items: Any) -> Tensor:
        if items is None:
            return self.crf.nll(logits, labels, mask, reduction="token_mean")
        return self.crf.nll(logits, labels, mask, reduction="sum") / items

    def _predictions(self, logits: Tensor, mask: Tensor) -> Tensor:
        predictions = torch.full(logits.shape[:2], _ABSENT, dtype=torch.long, device=logits.device)
        paths = [label for path in self.crf.decode(logits, mask) for label in path]
        predictions[mask.bool()] = torch.tensor(paths, dtype=torch.long, device=logits.device)
        return predictions

    def decode(self, logits: Tensor, word_mask: Optional[Tensor] = None) -> List[List[str]]:
        """Label names of the best legal sequence of each text, for the positions that are not masked."""
        return [self.crf.labels.names(path) for path in self.crf.decode(logits, word_mask)]

    def compute_metrics(self, evaluation: Any) -> Dict[str, float]:
        """Precision, recall and F1 of spans, and accuracy of labels: `Trainer(…, compute_metrics=model.compute_metrics)`."""
        found = evaluation.predictions[1] if isinstance(evaluation.predictions, tuple) else evaluation.predictions
        scheme, gold = Scheme(label_names(self.config.id2label), self.config.scheme), evaluation.label_ids
        pairs = [(y[z != _ABSENT].tolist(), z[z != _ABSENT].tolist()) for y, z in zip(found, gold)]
        right = sum(len(_entities(scheme, y) & _entities(scheme, z)) for y, z in pairs)
        claimed, true = (sum(len(_entities(scheme, pair[side])) for pair in pairs) for side in (0, 1))
        labels = sum(len(z) for _, z in pairs)
        return {"precision": right / claimed if claimed else 0.0, "recall": right / true if true else 0.0,
                "f1": 2 * right / (claimed + true) if claimed + true else 0.0,
                "accuracy": sum(a == b for y, z in pairs for a, b in zip(y, z)) / labels if labels else 0.0}


def _entities(scheme: Scheme, ids: List[int]) -> Set[Found]:
    """The spans of types; where no label has a role, all but O's."""
    return {span for span in scheme.spans(ids) if not scheme.is_background(ids[span.begin])}


def _without_pooler(encoder: Any) -> Any:
    """A summary of the text, which no token's label needs, is left out where the encoder allows it."""
    if "add_pooling_layer" in inspect.signature(type(encoder).__init__).parameters:
        encoder.pooler = None
    return encoder


def _dropout(config: RegCCRFConfig) -> float:
    theirs = (getattr(config.encoder, name, None) for name in ("classifier_dropout", "hidden_dropout_prob"))
    return float(next((value for value in (config.classifier_dropout, *theirs) if value is not None), 0.1))


def _written(constraint: LanguageLike, labels: List[str]) -> str:
    """As a config keeps it."""
    return constraint if isinstance(constraint, str) else _COMPILED + base64.b64encode(compile(constraint, labels).to_bytes()).decode("ascii")


AutoConfig.register("regccrf", RegCCRFConfig, exist_ok=True)
AutoModelForTokenClassification.register(RegCCRFConfig, RegCCRFForTokenClassification, exist_ok=True)
