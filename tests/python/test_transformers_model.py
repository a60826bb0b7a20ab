"""`RegCCRFForTokenClassification`: saved, loaded, initialised, trained and evaluated as a model of transformers."""

import gc
import json

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

import regccrf  # noqa: E402
import tiny_models  # noqa: E402
from regccrf.torch import RegCCRF  # noqa: E402
from regccrf.transformers import RegCCRFConfig, RegCCRFForTokenClassification, constrain, word_mask  # noqa: E402

LABELS = tiny_models.BIO
MODELS = sorted(tiny_models.ALL)
DATA = [("ada lovelace met alan".split(), "B-PER I-PER O B-PER".split()), ("they saw new york".split(), "O O B-LOC I-LOC".split()),
        ("london".split(), ["B-LOC"]), ("alan turing saw london".split(), "B-PER I-PER O B-LOC".split())]
pytestmark = pytest.mark.filterwarnings("ignore")


def encoder_of(kind):
    model, tokenizer = tiny_models.ALL[kind]()
    return model.base_model, tokenizer


def model_of(kind, **config):
    torch.manual_seed(1)
    encoder, tokenizer = encoder_of(kind)
    return RegCCRFForTokenClassification.from_encoder(encoder, LABELS, **config), tokenizer


def rows(tokenizer, data=DATA):
    """Token ids, and a word's label at its first token."""
    found = []
    for words, gold in data:
        encoded = tokenizer(words, is_split_into_words=True)
        word_ids = encoded.word_ids()
        first = [w is not None and w not in word_ids[:t] for t, w in enumerate(word_ids)]
        found.append({"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"],
                      "labels": [LABELS.index(gold[w]) if here else -100 for w, here in zip(word_ids, first)]})
    return found


def batch_of(tokenizer, data=DATA):
    return transformers.DataCollatorForTokenClassification(tokenizer)(rows(tokenizer, data))


@pytest.mark.parametrize("kind", MODELS)
def test_the_loss_is_the_layers(kind):
    model, tokenizer = model_of(kind)
    batch = batch_of(tokenizer)
    output = model(**batch)
    emissions = model.classifier(model.encoder(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state)
    torch.testing.assert_close(output.logits, emissions)
    mask = batch["labels"] != -100
    torch.testing.assert_close(output.loss, model.crf.nll(emissions, batch["labels"], mask, reduction="token_mean"))
    assert [row[here].tolist() for row, here in zip(output.predictions, mask)] == model.crf.decode(emissions, mask)
    assert (output.predictions[~mask] == -100).all()
    assert model.decode(output.logits, mask) == [model.crf.labels.names(y) for y in model.crf.decode(emissions, mask)]
    unlabelled = {key: value for key, value in batch.items() if key != "labels"}
    assert model(**unlabelled).predictions is None
    assert model(**unlabelled, word_mask=mask).predictions.equal(output.predictions)
    assert torch.equal(model(**batch, return_dict=False)[0], output.loss)
    assert model.train()(**batch).predictions is None


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("constraint", ["auto", "(O | B-PER I-PER*)* & at_most(2, B-PER)", regccrf.Language("O* B-LOC? O*", LABELS)])
def test_saved_and_loaded_it_is_the_same(kind, constraint, tmp_path):
    model, tokenizer = model_of(kind, constraint=constraint, start_end=constraint == "auto", outside="skip")
    batch = batch_of(tokenizer)
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "regccrf"
    for loader in (RegCCRFForTokenClassification, transformers.AutoModelForTokenClassification):
        loaded = loader.from_pretrained(tmp_path)
        assert isinstance(loaded, RegCCRFForTokenClassification) and not loaded.training
        assert loaded.crf.constraint == model.crf.constraint and loaded.config.id2label == model.config.id2label
        assert {name: x.tolist() for name, x in loaded.state_dict().items()} == {name: x.tolist() for name, x in model.state_dict().items()}
        with torch.no_grad():
            torch.testing.assert_close(loaded(**batch).loss, model(**batch).loss)
            assert loaded(**batch).predictions.equal(model(**batch).predictions)


def test_another_constraint_around_the_same_weights(tmp_path):
    model, tokenizer = model_of("bert")
    model.save_pretrained(tmp_path / "one")
    for other in ("O* B-LOC O*", regccrf.Language("O* B-LOC O*", LABELS)):
        loaded = RegCCRFForTokenClassification.from_pretrained(tmp_path / "one", constraint=other)
        assert loaded.crf.constraint == regccrf.compile("O* B-LOC O*", LABELS) and loaded.crf.transitions.equal(model.crf.transitions)
        loaded.save_pretrained(tmp_path / "two")
        assert RegCCRFForTokenClassification.from_pretrained(tmp_path / "two").crf.constraint == loaded.crf.constraint


def soil_memory():
    """Memory that is not initialised holds what was there before: let that be NaN."""
    soiled = [torch.full((size,), float("nan")) for size in (4, 5, 16, 25, 80, 512) for _ in range(200)]
    del soiled
    gc.collect()


def head_is_new(model):
    K = len(LABELS)
    for scores, bound in ((model.crf.transitions, 0.1), (model.crf.start_transitions, 0.1), (model.crf.end_transitions, 0.1),
                          (model.classifier.weight, 0.2)):
        assert not scores.is_meta and scores.isfinite().all() and 0 < scores.abs().max() <= bound and len(scores.unique()) >= min(scores.numel(), K)
    assert not model.classifier.bias.any()


@pytest.mark.parametrize("kind", MODELS)
def test_over_a_headless_encoder_the_head_is_initialised(kind, tmp_path):
    encoder, tokenizer = encoder_of(kind)
    encoder.save_pretrained(tmp_path)
    soil_memory()
    model = RegCCRFForTokenClassification.from_pretrained(tmp_path, labels=LABELS, constraint="(O | B-PER I-PER*)*")
    head_is_new(model)
    loaded = dict(model.encoder.named_parameters())
    assert all(torch.equal(loaded[name], value) for name, value in encoder.named_parameters())  # and the encoder's weights are its own
    assert model.crf.constraint == regccrf.compile("(O | B-PER I-PER*)*", LABELS)
    assert model(**batch_of(tokenizer, DATA[:1])).loss.isfinite()


@pytest.mark.parametrize("kind", MODELS)
def test_what_a_checkpoint_lacks_is_initialised(kind, tmp_path):
    """A folder with the config of the model and the weights of an encoder: transformers itself asks for what is missing."""
    model, _ = model_of(kind)
    state = {name: value for name, value in model.state_dict().items() if name.startswith("encoder.")}
    model.save_pretrained(tmp_path, state_dict=state)
    soil_memory()
    loaded = RegCCRFForTokenClassification.from_pretrained(tmp_path)
    head_is_new(loaded)
    torch.testing.assert_close(dict(loaded.encoder.state_dict()), dict(model.encoder.state_dict()))


def test_without_labels_there_is_no_head(tmp_path):
    encoder_of("bert")[0].save_pretrained(tmp_path)
    with pytest.raises(regccrf.Error, match="labels="):
        RegCCRFForTokenClassification.from_pretrained(tmp_path)
    by_id = RegCCRFForTokenClassification.from_pretrained(tmp_path, id2label=dict(enumerate(LABELS)))
    assert by_id.config.label2id["I-LOC"] == 4 and list(by_id.crf.labels) == LABELS
    with pytest.raises(regccrf.Error, match="no encoder"):
        RegCCRFForTokenClassification(RegCCRFConfig(id2label=dict(enumerate(LABELS))))


def arguments(folder, **more):
    return transformers.TrainingArguments(output_dir=str(folder), per_device_train_batch_size=2, learning_rate=0.02, report_to=[], use_cpu=True,
                                          disable_tqdm=True, logging_strategy="no", **more)


@pytest.mark.parametrize("kind", MODELS)
def test_trainer_trains_evaluates_saves_and_goes_on(kind, tmp_path):
    model, tokenizer = model_of(kind)
    data = rows(tokenizer)
    build = lambda model, steps: transformers.Trainer(
        model=model, args=arguments(tmp_path / "run", max_steps=steps, save_steps=20), train_dataset=data, eval_dataset=data,
        data_collator=transformers.DataCollatorForTokenClassification(tokenizer), compute_metrics=model.compute_metrics)
    trainer = build(model, 60)
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_loss"] < before["eval_loss"] / 4 and after["eval_f1"] == after["eval_accuracy"] == 1.0
    predictions = trainer.predict(data).predictions[1]
    assert [model.crf.labels.names(y[y != -100].tolist()) for y in predictions] == [gold for _, gold in DATA]
    again = RegCCRFForTokenClassification.from_pretrained(tmp_path / "run" / "checkpoint-60")
    assert build(again, 60).evaluate()["eval_loss"] == pytest.approx(after["eval_loss"], rel=1e-5)
    resumed = build(model_of(kind)[0], 60)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-40"))
    assert resumed.evaluate()["eval_loss"] == pytest.approx(after["eval_loss"], rel=0.05)
    ner = constrain(again, tokenizer=tokenizer, aggregation_strategy="first") if kind == "bert" else None
    if ner is not None:  # trained on first tokens, it is asked so
        assert [(x["entity_group"], x["word"]) for x in ner("ada lovelace met alan")] == [("PER", "ada lovelace"), ("PER", "alan")]


def test_gradients_of_accumulated_batches_are_those_of_one_batch(tmp_path):
    def trained(size, steps):
        model, tokenizer = model_of("bert", classifier_dropout=0.0)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        chosen = arguments(tmp_path, max_steps=1, gradient_accumulation_steps=steps, save_strategy="no", optim="sgd", max_grad_norm=0.0)
        chosen.per_device_train_batch_size = size
        transformers.Trainer(model=model, args=chosen, train_dataset=rows(tokenizer),
                             data_collator=transformers.DataCollatorForTokenClassification(tokenizer)).train()
        return model
    one, several = trained(4, 1), trained(2, 2)
    for (name, x), (_, y) in zip(one.named_parameters(), several.named_parameters()):
        torch.testing.assert_close(x, y, atol=1e-6, rtol=1e-5, msg=name)


@pytest.mark.parametrize("kind", MODELS)
def test_unlabelled_text_has_the_mask_of_its_words(kind):
    model, tokenizer = model_of(kind)
    encoded = tokenizer([words for words, _ in DATA], is_split_into_words=True, padding=True, return_tensors="pt")
    assert word_mask(encoded).equal(batch_of(tokenizer)["labels"] != -100)
    inputs = {name: encoded[name] for name in ("input_ids", "attention_mask")}
    assert [(row != -100).sum().item() for row in model(**inputs, word_mask=word_mask(encoded)).predictions] == [len(words) for words, _ in DATA]


def test_metrics_are_those_of_spans():
    model, _ = model_of("bert")
    label = LABELS.index
    gold = [[label("B-PER"), label("I-PER"), label("O"), -100], [label("B-LOC"), -100, label("O"), label("B-LOC")]]
    found = [[label("B-PER"), label("I-PER"), label("B-LOC"), -100], [label("B-LOC"), -100, label("B-LOC"), label("I-LOC")]]
    metrics = model.compute_metrics(transformers.EvalPrediction(predictions=(None, np.array(found)), label_ids=np.array(gold)))
    assert metrics == {"precision": 2 / 4, "recall": 2 / 3, "f1": pytest.approx(4 / 7), "accuracy": 3 / 6}


def test_gold_outside_the_language_is_an_error_or_left_out():
    data = [("london saw".split(), ["I-LOC", "O"])]
    for outside in ("raise", "skip"):
        model, tokenizer = model_of("bert", outside=outside)
        if outside == "raise":
            with pytest.raises(regccrf.Error, match="I-LOC"):
                model(**batch_of(tokenizer, data))
        else:
            assert model(**batch_of(tokenizer, data)).loss == 0


def test_a_pipeline_takes_the_trained_scores_and_constraint():
    model, tokenizer = model_of("bert", constraint="(O | B-PER I-PER*)*")
    torch.nn.init.normal_(model.crf.transitions, 0, 3)
    torch.nn.init.normal_(model.crf.start_transitions, 0, 3)
    torch.nn.init.normal_(model.crf.end_transitions, 0, 3)
    text = "ada lovelace met alan"
    ner = constrain(model, tokenizer=tokenizer, ignore_labels=[])
    assert ner.decoder.constraint == model.crf.constraint
    inputs = tokenizer(text, return_tensors="pt", return_special_tokens_mask=True)
    mask = inputs.pop("special_tokens_mask") == 0
    with torch.no_grad():
        logits = model(**inputs).logits
    found = ner(text)
    assert [x["entity"] for x in found] == model.decode(logits, mask)[0]
    marginals = model.crf.marginals(logits, mask)[0][mask[0]]
    np.testing.assert_allclose([x["score"] for x in found], [marginals[t, LABELS.index(x["entity"])].item() for t, x in enumerate(found)], atol=1e-5)


def test_the_layer_is_the_one_of_regccrf_torch():
    model, _ = model_of("bert")
    assert type(model.crf) is RegCCRF and {"crf.transitions", "crf.start_transitions", "crf.end_transitions"} <= set(model.state_dict())
    assert model.get_input_embeddings() is model.encoder.get_input_embeddings()
