"""`regccrf.transformers.constrain`: pipelines whose answers are legal, against enumeration, against the pipeline that is replaced, and against
privacy-filter's procedure in plain Python."""

import itertools
import json
import math
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import regccrf  # noqa: E402
import tiny_models  # noqa: E402
from procedure import numpy_viterbi, plain_viterbi  # noqa: E402
from regccrf._scheme import Scheme  # noqa: E402
from regccrf.transformers import SpanDecoder, constrain, scheme_language  # noqa: E402

TEXT = "Ada Lovelace met Alan Turing in London."
STRATEGIES = ["none", "simple", "first", "average", "max"]
MODELS = sorted(tiny_models.ALL)
POS = ["NOUN", "VERB", "ADJ", "PUNCT"]
pytestmark = pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")


def pipeline(kind, labels=None, strategy="simple", max_length=512, **parameters):
    more = {} if labels is None and kind == "privacy-filter" else {"labels": labels or tiny_models.BIO}
    model, tokenizer = tiny_models.ALL[kind](max_length=max_length, **more)
    return transformers.pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy=strategy, **parameters)


# --- labels and schemes --------------------------------------------------------------------------------------------------------------

def spelt(scheme, spans, length):
    """The labels of (begin, end, type) spans, by the scheme's definition."""
    labels = ["O"] * length
    for i, (begin, end, kind) in enumerate(spans):
        inside = ["I-" + kind] * (end - begin)
        touches = i > 0 and spans[i - 1][1:] == (begin, kind)
        if scheme == "bio":
            inside[0] = "B-" + kind
        elif scheme == "iob1" and touches:
            inside[0] = "B-" + kind
        elif scheme in ("bioes", "bilou", "bmewo"):
            b, m, e, s = {"bioes": "BIES", "bilou": "BILU", "bmewo": "BMEW"}[scheme]
            inside = [f"{s}-{kind}"] if end - begin == 1 else [f"{b}-{kind}", *[f"{m}-{kind}"] * (end - begin - 2), f"{e}-{kind}"]
        elif scheme == "bios":
            inside = [f"S-{kind}"] if end - begin == 1 else [f"B-{kind}", *inside[1:]]
        elif scheme == "io" and touches:
            return None  # it has no spelling for that
        labels[begin:end] = inside
    return tuple(labels)


def all_spans(begin, length):
    """Every way to put spans of A and B on positions."""
    if begin == length:
        yield []
        return
    for rest in all_spans(begin + 1, length):
        yield rest
    for end, kind in itertools.product(range(begin + 1, length + 1), "AB"):
        for rest in all_spans(end, length):
            yield [(begin, end, kind), *rest]


LABELS = {"bio": "B-A I-A B-B I-B", "iob1": "I-A B-A I-B", "bioes": "B-A I-A E-A S-A B-B I-B E-B S-B", "io": "I-A I-B",
          "bilou": "B-A I-A L-A U-A B-B I-B L-B U-B", "bmewo": "B-A M-A E-A W-A B-B M-B E-B W-B", "bios": "B-A I-A S-A B-B I-B S-B"}
NAMES = {"bilou": "bioes", "bmewo": "bioes", "bios": "bioes"}


@pytest.mark.parametrize("name", sorted(LABELS))
def test_a_scheme_is_found_and_its_language_is_what_it_can_spell(name):
    labels = ["O", *LABELS[name].split()]
    scheme = Scheme(labels)
    assert scheme.name == NAMES.get(name, name)
    expected = {}
    for spans in all_spans(0, 4):
        labelled = spelt(name, spans, 4)
        if labelled and set(labelled) <= set(labels):
            expected[labelled] = spans
    assert {tuple(y) for y in scheme.language().of_length(4, most=10 ** 5)} == set(expected)
    for labelled, spans in expected.items():
        found = scheme.spans([labels.index(label) for label in labelled])
        assert [tuple(span) for span in found if span.type != "O"] == spans


def test_more_schemes():
    assert Scheme(POS).name == "plain" and Scheme(["LABEL_0", "LABEL_1"]).name == "plain"
    assert Scheme(["B", "I", "O"]).name == "bio" and Scheme(["B", "M", "E", "S"]).name == "bioes"
    assert Scheme(["O", "B_PER", "I_PER"]).types == ["PER"]
    assert Scheme(["O", "B-R-ARG0", "I-R-ARG0"]).types == ["R-ARG0"]
    assert Scheme(["O", "B-A", "I-A"], "plain").name == "plain"
    assert ["X", "[PAD]", "B-A", "I-A"] in scheme_language(["X", "[PAD]", "O", "B-A", "I-A"])
    assert ["I-A", "B-A", "O", "I-A"] in scheme_language(["O", "B-A", "I-A"], "iob1")
    assert ["B-A"] not in scheme_language(["O", "B-A", "I-A"], "iob1")
    quoted = scheme_language(['O', 'B-a "b" c|d', 'I-a "b" c|d'])
    assert ['B-a "b" c|d', 'I-a "b" c|d'] in quoted and ['I-a "b" c|d'] not in quoted


def test_labels_without_names_are_told():
    with pytest.warns(UserWarning, match="everything is legal"):
        SpanDecoder(["LABEL_0", "LABEL_1"])


@pytest.mark.parametrize("call, message", [
    (lambda: Scheme(["O"], "iobes"), "expected one of bio, iob1"), (lambda: Scheme(POS, "bio"), "have none that begins a span"),
    (lambda: SpanDecoder({0: "O", 2: "B-A"}), "label ids must be 0 to 1"),
    (lambda: SpanDecoder(["O", "B-A", "I-A"], biases={"end_to_start": 1}), "BIOES"),
    (lambda: SpanDecoder(["O", "B-A", "I-A", "E-A", "S-A"], biases={"inside_to_begin": 1}), "no bias 'inside_to_begin'"),
    (lambda: SpanDecoder(["O", "B-A", "I-A"], "B-C*"), "B-C")])
def test_errors_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- exact probabilities -------------------------------------------------------------------------------------------------------------

def enumerated(decoder, scores):
    """{labels: probability} over the language, from its definition."""
    labels = decoder.labels
    totals = {}
    for y in decoder.constraint.language().of_length(len(scores), most=10 ** 6):
        ids = [labels.index(name) for name in y]
        totals[tuple(y)] = sum(scores[t][a] for t, a in enumerate(ids)) + sum(decoder.transitions[a, b] for a, b in zip(ids, ids[1:]))
    most = max(totals.values())
    z = sum(math.exp(score - most) for score in totals.values())
    return {y: math.exp(score - most) / z for y, score in totals.items()}


@pytest.mark.parametrize("name, language", [*((name, "auto") for name in sorted(LABELS)), ("bio", ".*"), ("iob1", ".*")])
def test_span_probabilities_against_enumeration(name, language):
    labels = ["O", *LABELS[name].split()]
    decoder = SpanDecoder(labels, language)
    for seed in range(8):
        scores = np.random.RandomState(seed).randn(4, len(labels)) * 2
        probability = enumerated(decoder, scores)
        assert decoder.decode(scores) == list(max(probability, key=probability.get))
        spans = decoder.spans(scores)
        assert seed > 0 or spans
        for span in spans:
            holds = [p for y, p in probability.items() if tuple(span[:3]) in
                     {tuple(found) for found in decoder.scheme.spans([labels.index(label) for label in y])}]
            assert span.probability == pytest.approx(sum(holds), abs=1e-9)


def test_plain_runs_are_spans_with_probabilities():
    decoder = SpanDecoder(POS)
    scores = np.random.RandomState(1).randn(4, 4)
    probability = enumerated(decoder, scores)
    for span in decoder.spans(scores):
        run = [p for y, p in probability.items() if set(y[span.begin:span.end]) == {span.type}
               and (span.begin == 0 or y[span.begin - 1] != span.type) and (span.end == 4 or y[span.end] != span.type)]
        assert span.probability == pytest.approx(sum(run), abs=1e-9)


# --- a pipeline in the place of another ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_where_everything_is_legal_the_answer_is_the_pipelines_own(kind, strategy):
    theirs = pipeline(kind, POS, strategy, ignore_labels=["PUNCT"])
    ours = constrain(theirs)
    expected, found = theirs(TEXT), ours(TEXT)
    assert expected
    for x in expected + found:
        x["probability"] = float(x.pop("score"))
    if strategy == "none":  # a label's probability is its softmax
        np.testing.assert_allclose([x["probability"] for x in found], [x["probability"] for x in expected], atol=1e-5)
    for x in expected + found:
        del x["probability"]
    assert found == expected


@pytest.mark.parametrize("kind", MODELS)
def test_texts_come_in_every_form_that_the_pipeline_takes(kind):
    ner = constrain(pipeline(kind))
    texts = [TEXT, "London", "they saw new york and london in may"]
    expected = [ner(text) for text in texts]
    assert any(expected)
    assert ner(texts) == expected and list(ner(text for text in texts)) == expected
    batched = ner(texts, batch_size=3)
    assert [[x["word"] for x in some] for some in batched] == [[x["word"] for x in some] for some in expected]
    np.testing.assert_allclose([x["score"] for some in batched for x in some], [x["score"] for some in expected for x in some], atol=1e-4)
    words = TEXT.split()
    split = ner(words, is_split_into_words=True)
    split = split[0] if isinstance(split[0], list) else split
    assert all(TEXT[x["start"]:x["end"]].strip() for x in split) and split
    assert json.dumps(ner(TEXT))  # scores are numbers that json knows


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_answers_are_the_best_legal_sequence(kind, strategy):
    """Every token's or word's label, put together from the answer, is what the decoder finds; and offsets point into the text."""
    base = pipeline(kind, strategy=strategy, ignore_labels=[])
    ner = constrain(base)
    found = ner(TEXT)
    if strategy == "none":
        assert [x["entity"] for x in found] in ner.decoder.constraint.language()
    ends = [x["end"] for x in found]
    assert ends == sorted(ends) and ends[-1] == len(TEXT)  # nothing is ignored: the spans cover the text
    assert all(0 <= x["score"] <= 1 for x in found)


def word_scores(theirs, strategy):
    """[words, K] log probabilities, from the definitions, by a loop."""
    inputs = theirs.tokenizer(TEXT, return_tensors="pt", return_offsets_mapping=True)
    offsets, ids = inputs.pop("offset_mapping")[0].tolist(), inputs.word_ids()
    with torch.no_grad():
        p = theirs.model(**inputs).logits[0].double().softmax(-1)
    words = {}
    for t, word in enumerate(ids):
        if word is not None:
            words.setdefault(word, []).append(t)
    rows = []
    for places in words.values():
        if strategy == "first":
            rows.append(p[places[0]])
        elif strategy == "average":
            rows.append(sum(p[t] for t in places) / len(places))
        else:
            rows.append(p[max(places, key=lambda t: p[t].max().item())])
    return torch.stack(rows).log().numpy(), [(offsets[places[0]][0], offsets[places[-1]][1]) for places in words.values()]


@pytest.mark.parametrize("strategy", ["first", "average", "max"])
def test_sub_words(strategy):
    theirs = pipeline("bert", strategy=strategy)
    scores, places = word_scores(theirs, strategy)
    expected = [(places[span.begin][0], places[span.end - 1][1], span.type, pytest.approx(span.probability, abs=1e-6))
                for span in SpanDecoder(tiny_models.BIO).spans(scores)]
    found = constrain(theirs)(TEXT)
    assert [(x["start"], x["end"], x["entity_group"], x["score"]) for x in found] == expected and expected


def test_patterns_and_languages():
    theirs = pipeline("bert", strategy="none", ignore_labels=[])
    one = constrain(theirs, "O* B-PER I-PER* O*")
    assert [x["entity"][0] for x in one(TEXT)].count("B") == 1
    both = constrain(theirs, scheme_language(tiny_models.BIO) & regccrf.Language("at_most(1, B-LOC)", tiny_models.BIO))
    assert [x["entity"] for x in both(TEXT)].count("B-LOC") <= 1
    with pytest.raises(regccrf.Error, match="no sequence of that length"):
        constrain(theirs, "O O O")("Ada Lovelace met")
    rules = regccrf.compile("at_most(1, B-LOC) & at_most(1, B-PER) & (O | B-PER I-PER* | B-LOC I-LOC*)*", tiny_models.BIO, rules="all")
    with pytest.raises(regccrf.Error, match="probabilities=False"):
        constrain(theirs, rules)
    found = constrain(theirs, rules, probabilities=False)(TEXT)
    assert [x["entity"] for x in found].count("B-LOC") <= 1 and found[0]["score"] is None


def test_models_folders_and_parameters(tmp_path):
    model, tokenizer = tiny_models.bert()
    expected = constrain(pipeline("bert", strategy="first"))(TEXT)
    assert constrain(model, tokenizer=tokenizer, aggregation_strategy="first")(TEXT) == expected
    assert constrain(pipeline("bert", strategy="none"), aggregation_strategy="first")(TEXT) == expected
    assert constrain(pipeline("bert", strategy="none"))(TEXT, aggregation_strategy="first") == expected
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert constrain(str(tmp_path), aggregation_strategy="first")(TEXT) == expected
    loaded = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path)
    assert constrain(loaded, aggregation_strategy="first")(TEXT) == expected
    with pytest.raises(regccrf.Error, match="tokenizer="):
        constrain(model)
    with pytest.raises(TypeError, match="expected a token-classification pipeline"):
        constrain(tokenizer)


def test_the_pipeline_that_is_replaced_stays_as_it_is():
    theirs = pipeline("bert", strategy="simple")
    before = theirs(TEXT)
    constrain(theirs, aggregation_strategy="first")
    assert theirs(TEXT) == before and type(theirs) is transformers.TokenClassificationPipeline


def test_it_can_be_pickled():
    ner = constrain(pipeline("bert"))
    assert pickle.loads(pickle.dumps(ner))(TEXT) == ner(TEXT)


def test_a_text_without_tokens_has_no_entities():
    assert constrain(pipeline("bert"))("") == [] and constrain(pipeline("bert"), "O+")("") == []


def test_half_precision_logits():
    theirs = pipeline("bert")
    theirs.model.to(torch.bfloat16)
    assert constrain(theirs)(TEXT)


# --- long texts -------------------------------------------------------------------------------------------------------------------------

def test_windows_give_what_the_whole_text_gives():
    """A model that sees eight tokens to each side: windows that overlap by more than that lose nothing, and their seams are not seen."""
    text = " ".join(random.Random(0).choices(tiny_models.WORDS, k=80))
    whole, windows = pipeline("privacy-filter", max_length=10000), pipeline("privacy-filter", max_length=64, stride=20)
    expected, found = constrain(whole)(text), constrain(windows)(text)
    assert len(expected) > 50
    assert [(x["start"], x["end"], x["entity_group"]) for x in found] == [(x["start"], x["end"], x["entity_group"]) for x in expected]
    np.testing.assert_allclose([x["score"] for x in found], [x["score"] for x in expected], atol=1e-4)
    assert constrain(pipeline("privacy-filter", max_length=64))(text, stride=20) == found


@pytest.mark.parametrize("kind", MODELS)
def test_windows_of_other_models_are_decoded_in_one_piece(kind):
    text = " ".join(random.Random(1).choices(tiny_models.WORDS, k=60))
    one = constrain(pipeline(kind, tiny_models.BIO, max_length=32, stride=8), "O* B-PER I-PER* O*")(text)
    assert len(one) == 1 and text[one[0]["start"]:one[0]["end"]]


def test_windows_that_do_not_go_from_left_to_right_are_refused():
    ner = constrain(pipeline("bert", max_length=16, stride=4))
    ner.tokenizer.truncation_side = "left"
    with pytest.raises(regccrf.Error, match="truncation_side"):
        ner(" ".join(tiny_models.WORDS * 3))


class TokensAlone(transformers.PreTrainedModel):
    """A classifier that sees one token at a time, for texts that are long."""
    config_class = transformers.BertConfig

    def __init__(self, config):
        super().__init__(config)
        self.scores = torch.nn.Embedding(config.vocab_size, config.num_labels)
        self.post_init()

    def _init_weights(self, module):
        module.weight.data.normal_(0, 3)

    def forward(self, input_ids, attention_mask=None, **others):
        return {"logits": self.scores(input_ids)}


def test_128000_tokens_at_once():
    labels = transformers.OpenAIPrivacyFilterConfig().id2label
    torch.manual_seed(0)
    model = TokensAlone(transformers.BertConfig(vocab_size=300, id2label=labels, label2id={label: i for i, label in labels.items()}))
    ner = constrain(model, tokenizer=tiny_models.byte_pieces(False, 200000), aggregation_strategy="simple", biases={"end_to_start": -1.0})
    text = "".join(random.Random(0).choices("abcd efgh.", k=128000))
    found = ner(text)
    ids = ner.tokenizer(text)["input_ids"]
    assert len(ids) > 120000 and len(found) > 10000 and found[-1]["end"] > 127900
    scores = model.scores.weight.detach().double().numpy()[ids][:3000]
    decoder = ner.decoder
    ours, plain = decoder.ids(scores), plain_viterbi(scores, labels, {"end_to_start": -1.0})
    assert decoder.constraint.accepts(ours)
    value = lambda y: sum(scores[t, a] for t, a in enumerate(y)) + sum(decoder.transitions[a, b] for a, b in zip(y, y[1:]))
    assert value(ours) == pytest.approx(value(plain), rel=1e-12)  # one of several that are as good: the same tokens come again and again


# --- privacy-filter's procedure -----------------------------------------------------------------------------------------------------------

BIASES = [{}, {"background_stay": 2.0, "background_to_start": -1.5, "end_to_background": 0.7, "end_to_start": -2.0, "inside_to_continue": 1.1,
               "inside_to_end": -0.4}, {"transition_bias_background_to_start": 3.0, "transition_bias_inside_to_continue": 2.0}]


@pytest.mark.parametrize("biases", BIASES)
@pytest.mark.parametrize("seed", range(3))
def test_biases_are_privacy_filters_procedure(biases, seed):
    model, tokenizer = tiny_models.privacy_filter(seed=seed)
    ner = constrain(model, tokenizer=tokenizer, biases=biases, ignore_labels=[])
    text = " ".join(random.Random(seed).choices(tiny_models.WORDS, k=200))
    with torch.no_grad():
        logits = model(**tokenizer(text, return_tensors="pt")).logits[0].double()
    plain = {name.replace("transition_bias_", ""): value for name, value in biases.items()}
    expected = plain_viterbi(logits.log_softmax(-1).tolist(), model.config.id2label, plain)
    assert numpy_viterbi(logits.log_softmax(-1).numpy(), model.config.id2label, plain) == expected
    assert len(expected) > 800 and len(set(expected)) > 10
    assert [model.config.label2id[x["entity"]] for x in ner(text)] == expected


def test_biases_are_in_the_probabilities():
    labels = ["O", "B-A", "I-A", "E-A", "S-A"]
    decoder = SpanDecoder(labels, biases=BIASES[1])
    scores = np.random.RandomState(3).randn(4, 5)
    probability = enumerated(decoder, scores)
    for span in decoder.spans(scores):
        letters = ["S-A"] if span.end - span.begin == 1 else ["B-A", *["I-A"] * (span.end - span.begin - 2), "E-A"]
        assert span.probability == pytest.approx(sum(p for y, p in probability.items() if list(y[span.begin:span.end]) == letters), abs=1e-9)


# --- its own world ------------------------------------------------------------------------------------------------------------------------

def test_the_package_does_not_import_transformers():
    program = "import sys, regccrf, regccrf.torch; assert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_transformers_it_says_what_to_install():
    program = "import sys; sys.modules['transformers'] = None\ntry: import regccrf.transformers\nexcept ModuleNotFoundError as error: print(error)"
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert "pip install regccrf[transformers]" in said
