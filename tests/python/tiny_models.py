"""Tiny random models and tokenizers of transformers, made here, without a network: BERT with word pieces, RoBERTa with bytes and special tokens,
privacy-filter with bytes alone."""

import string

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForTokenClassification,
    OpenAIPrivacyFilterConfig,
    OpenAIPrivacyFilterForTokenClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForTokenClassification,
)

BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
WORDS = "ada lovelace met alan turing in london and they saw new york".split()


def word_pieces(max_length=512):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + WORDS[::2] + list(string.ascii_lowercase + string.punctuation)
    pieces += ["##" + letter for letter in string.ascii_lowercase]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(dict.fromkeys(pieces))}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
                                   model_max_length=max_length)


def byte_pieces(special, max_length=512):
    """Of bytes, and of pairs of letters that are frequent."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("i", "n"), ("a", "n"), ("Ġ", "a"), ("o", "n")]
    names = (["<s>", "<pad>", "</s>"] if special else ["<pad>"]) + alphabet + ["".join(pair) for pair in merges]
    tokenizer = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if not special:
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", model_max_length=max_length)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", cls_token="<s>", sep_token="</s>", model_max_length=max_length)


def _model(kind, labels, seed, sure, sizes):
    config_class, model_class = {
        "bert": (BertConfig, BertForTokenClassification), "roberta": (RobertaConfig, RobertaForTokenClassification),
        "privacy-filter": (OpenAIPrivacyFilterConfig, OpenAIPrivacyFilterForTokenClassification)}[kind]
    names = {} if labels is None else dict(id2label=dict(enumerate(labels)), label2id={label: i for i, label in enumerate(labels)})
    torch.manual_seed(seed)
    model = model_class(config_class(**sizes, **names)).eval()
    with torch.no_grad():  # random weights say little; these are as far apart as a trained model's
        head = model.score if kind == "privacy-filter" else model.classifier
        head.weight.normal_(0, sure)
    return model


def bert(labels=BIO, seed=0, sure=1.0, max_length=512):
    sizes = dict(vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    return _model("bert", labels, seed, sure, sizes), word_pieces(max_length)


def roberta(labels=BIO, seed=0, sure=1.0, max_length=512):
    sizes = dict(vocab_size=300, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=600,
                 pad_token_id=1, bos_token_id=0, eos_token_id=2)
    return _model("roberta", labels, seed, sure, sizes), byte_pieces(True, max_length)


def privacy_filter(labels=None, seed=0, sure=1.0, max_length=128000):
    """Its own labels, BIOES of eight types, without any given."""
    sizes = dict(vocab_size=300, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
                 num_local_experts=4, num_experts_per_tok=2, sliding_window=8, pad_token_id=0, eos_token_id=0)
    return _model("privacy-filter", labels, seed, sure, sizes), byte_pieces(False, max_length)


ALL = {"bert": bert, "roberta": roberta, "privacy-filter": privacy_filter}
