"""Training and tagging from Python."""

import itertools
import math
import os
import pickle
import signal
import threading
import time
import warnings

import numpy
import pytest

import regccrf

BIO = "(O | B I*)*"


def corpus(many=30):
    sentences = [("Ann", "Lee", "sings"), ("he", "saw", "Ann"), ("Jo", "saw", "Ann", "Lee"), ("they", "sing")]
    labels = [("B", "I", "O"), ("O", "O", "B"), ("B", "O", "B", "I"), ("O", "O")]
    X = [[{"w": word, "capital": word[0].isupper()} for word in sentence] for sentence in sentences]
    return (X * many)[:many], ([list(y) for y in labels] * many)[:many]


def sequences(model, x, legal=None):
    """Every sequence with its unnormalised weight, from the model's own weights."""
    features, transitions = model.features(), model.transitions()
    names = list(model.labels)
    for y in itertools.product(range(len(names)), repeat=len(x)):
        if legal is not None and not legal.accepts(list(y)):
            continue
        score = sum(transitions.get((names[a], names[b]), 0) for a, b in zip(y, y[1:]))
        for item, a in zip(x, y):
            score += features.get((f"w:{item['w']}", names[a]), 0) + item["capital"] * features.get(
                ("capital", names[a]), 0
            )
        yield [names[a] for a in y], math.exp(score)


def test_tagger_gives_what_the_weights_say():
    X, y = corpus()
    model = regccrf.train(X, y, constraint=BIO, l2=0.01)
    tagger = regccrf.Tagger(model)
    assert tagger.tag_all(X) == y
    for x in X[:4] + [[{"w": "sings", "capital": False}, {"w": "Lee", "capital": True}]]:
        ranked = sorted(sequences(model, x, model.constraint), key=lambda pair: -pair[1])
        z = sum(weight for _, weight in ranked)
        assert tagger.tag(x) == ranked[0][0]
        best = tagger.k_best(x, 3)
        weights = {tuple(labels): weight for labels, weight in ranked}
        assert [path.probability for path in best] == pytest.approx([weights[tuple(path.labels)] / z for path in best])
        assert len({tuple(path.labels) for path in best}) == len(best)
        assert [path.probability for path in best] == pytest.approx([weight / z for _, weight in ranked[:3]])
        for t, marginals in enumerate(tagger.marginals(x)):
            for label, p in marginals.items():
                assert p == pytest.approx(sum(weight for labels, weight in ranked if labels[t] == label) / z, abs=1e-9)
        mass = z / sum(weight for _, weight in sequences(model, x))
        assert tagger.language_mass(x) == pytest.approx(mass)


def test_attributes_flatten_as_python_crfsuite_does():
    x = [
        {"a": "b", "n": 1.5, "t": True, "p": {"x": "y", "q": {"r": 2}}, "l": ["u", "v"], "s": {"w"}},
        ["plain", "list"],
        {},
    ]
    model = regccrf.train([x], [["A", "B", "A"]])
    names = {name for name, _ in model.features()}
    assert names == {"a:b", "n", "t", "p:x:y", "p:q:r", "l:u", "l:v", "s:w", "plain", "list"}
    for bad in [[{"a": None}], [{1: "x"}], [["a", 1]], [3], [{"a": float("nan")}]]:
        with pytest.raises((TypeError, ValueError)):
            regccrf.train([bad], [["A"]])
    with pytest.raises(ValueError, match="sequence 1: a sequence has 1 positions and 2 labels"):
        regccrf.train([[["a"]], [{"a": 1}]], [["A"], ["A", "B"]])


def test_words_templates_and_files(tmp_path):
    words, labels = [["Ann", "Lee", "sings"], ["he", "saw", "Ann"]], [["B", "I", "O"], ["O", "O", "B"]]
    assert regccrf.Tagger(regccrf.train(words, labels, constraint=BIO)).tag_all(words) == labels
    template = regccrf.train(words, labels, features="U00:%x[0,0]\nU01:%x[-1,0]\nB\n", l2=0.1)
    assert ("U01:_B-1", "B") in template.features()
    path = tmp_path / "train"
    path.write_text("\n\n".join("\n".join(f"{w} {a}" for w, a in zip(*pair)) for pair in zip(words, labels)))
    model = regccrf.train(path, constraint=BIO)
    assert regccrf.Tagger(model).tag_all(words) == labels
    model.save(str(tmp_path / "model"))
    assert regccrf.Tagger(tmp_path / "model").tag_all(words) == labels
    assert regccrf.Tagger(str(tmp_path / "model")).model.labels == model.labels
    with pytest.raises(regccrf.Error, match="not a safetensors file"):
        regccrf.Tagger(path)


def test_transitions_that_depend_on_the_input():
    words = [["a", "keep", "turn"], ["b", "turn", "keep"], ["b", "keep", "turn"], ["a", "turn", "keep"]]
    labels = [["A", "A", "B"], ["B", "A", "A"], ["B", "B", "A"], ["A", "B", "B"]]
    model = regccrf.train(words, labels, features="U:%x[0,0]\nB\nB01:%x[0,0]\n", l2=0.001, constraint="!(.* A A A A .*)")
    tagger = regccrf.Tagger(pickle.loads(pickle.dumps(model)))
    assert tagger.tag(["b", "turn", "keep", "turn", "turn"]) == ["B", "A", "A", "B", "A"]
    assert model.pairs()["B01:turn", "A", "B"] > 0
    assert regccrf.train(words, labels, features="U:%x[0,0]\nB\n").pairs() == {}


def test_a_batch_is_not_taken_for_a_sentence():
    X, y = [["Ann", "Lee", "sings"], ["he", "sings"]], [["B", "I", "O"], ["O", "O"]]
    tagger = regccrf.Tagger(regccrf.train(X, y, constraint=BIO))
    for call in (tagger.tag, tagger.marginals, tagger.language_mass, lambda x: tagger.k_best(x, 2)):
        with pytest.raises(ValueError, match="rows have 2 to 3 columns; several sentences are for tag_all"):
            call(X)
    assert tagger.tag([["Ann", "NNP"], ["Lee", "NNP"]]) == ["B", "I"]  # columns
    attributes = regccrf.Tagger(regccrf.train([[["w=a"], ["w=b", "x"]]], [["A", "B"]]))
    assert attributes.tag([["w=a"], ["w=b", "x"]]) == ["A", "B"]  # lists of attributes have any length


def test_labels_that_the_model_lacks_are_told():
    model = regccrf.train([["Ann", "sings"]], [["B", "O"]])
    with pytest.warns(UserWarning, match="labels that the model lacks are left out: I"):
        tagger = regccrf.Tagger(model, constraint="(O | B I*)*")
    assert tagger.tag(["Ann"]) == ["B"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regccrf.Tagger(model, constraint="(O | B)*")


def test_outside_may_be_said_as_the_layer_says_it():
    with pytest.raises(regccrf.Error, match="outside the language"):
        regccrf.train([["Ann", "sings"]], [["I", "O"]], constraint=BIO, outside="raise")


def test_mistakes_are_told_in_words():
    X, y = [["Ann", "sings"]], [["B", "O"]]
    with pytest.raises(ValueError, match="sequence 0: a sequence has 3 positions and 1 label; a str is a sequence of char"):
        regccrf.train(X[0], y[0])
    with pytest.raises(TypeError, match="'c2': did you mean 'l2'"):
        regccrf.train(X, y, c2=1)
    with pytest.raises(TypeError, match="'max_iter': did you mean 'max_iterations'"):
        regccrf.train(X, y, max_iter=1)
    with pytest.raises(TypeError, match="progress is True, expected a function"):
        regccrf.train(X, y, progress=True)


def test_what_is_no_constraint_is_an_error():
    with pytest.raises(TypeError, match=r"constraint is \['B', 'I', 'O'\], expected a pattern"):
        regccrf.train([["Ann", "sings"]], [["B", "O"]], constraint=["B", "I", "O"])


def test_positions_in_messages_are_counted_from_0():
    tagger = regccrf.Tagger(regccrf.train([["Ann", "sings"]], [["B", "O"]], constraint=BIO), constraint="B O+")
    with pytest.raises(regccrf.Error, match="sentence 1 has length 1, and the language has no sequence of that length"):
        tagger.tag_all([["Ann", "sings"], ["Ann"]])
    with pytest.raises(regccrf.Error, match="The first is sequence 1: label I at position 0 leaves the language"):
        regccrf.train([["Ann"], ["Ann"]], [["B"], ["I"]], constraint=BIO)


def test_a_misspelt_label_is_named():
    X, y = [["Ann", "sings"]], [["B", "O"]]
    with pytest.raises(regccrf.Error, match="sequence 0: label C at position 0 leaves the language .possible there: O, B-PER.; no sequence"):
        regccrf.train(X, [["C", "O"]], constraint="(O | B-PER)*")
    with pytest.raises(regccrf.Error, match="no sequence of the language has this label: did you mean B-PER?"):
        regccrf.train(X, [["B-PRE", "O"]], constraint="(O | B-PER)*")
    with pytest.warns(UserWarning, match="no sequence of the language has the label B-PRE: did you mean B-PER?") as caught:
        regccrf.train(X, [["B-PER", "O"]], constraint="(O | B-PER)* & at_most(1, B-PRE)")
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regccrf.train(X, y, constraint="(O | B I*)*")  # I is not in the data, and in the language


def test_a_text_is_not_taken_for_words():
    tagger = regccrf.Tagger(regccrf.train([["Ann", "sings"]], [["B", "O"]], constraint=BIO))
    for ask in (tagger.tag, tagger.marginals, tagger.language_mass, lambda text: tagger.k_best(text, 2)):
        with pytest.warns(UserWarning, match="text.split.. makes words of it") as caught:
            ask("Ann sings")
        assert len(caught) == 1 and caught[0].filename == __file__
    for ask in (tagger.tag_all, tagger.marginals_all):
        with pytest.warns(UserWarning, match="text.split.. makes words of it") as caught:
            ask(["Ann sings", "Ann"])
        assert len(caught) == 1 and caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(tagger.tag("Ann")) == len(tagger.tag(list("A n"))) == 3


def test_labels_may_be_made_while_they_are_read():
    X, y = corpus()
    names = {"B": "B-person", "I": "I-person", "O": "outside"}
    expected = [[names[label] for label in labels] for labels in y]
    for made in [[numpy.array(labels) for labels in expected], ((names[label] + "" for label in labels) for labels in y)]:
        model = regccrf.train(X, made)
        assert set(model.labels) == set(names.values())
        assert regccrf.Tagger(model).tag_all(X) == expected


def test_a_string_is_a_sequence_of_characters():
    X, y = ["MKTLLV", "MKAAAV"], ["iiMMMM", "iiiiii"]
    model = regccrf.train(X, y, constraint="i+ M*", l2=0.01)
    assert ["".join(labels) for labels in regccrf.Tagger(model).tag_all(X)] == y


def test_another_constraint_and_none():
    X, y = corpus()
    model = regccrf.train(X, y, l2=0.1)
    assert model.constraint is None
    assert regccrf.Tagger(model, constraint="O*").tag(X[0]) == ["O", "O", "O"]
    strict = regccrf.Tagger(model, constraint="B I+ O*")
    with pytest.raises(regccrf.Error, match="no sequence of that length"):
        strict.tag(X[0][:1])
    assert strict.tag(X[0]) == ["B", "I", "O"], "an error leaves nothing behind"
    assert regccrf.Tagger(model, constraint="B I+ O*", no_sequence="empty").tag(X[0][:1]) is None
    assert regccrf.Tagger(model, constraint="B I+ O*", no_sequence="free").tag(X[0][:1]) == ["B"]
    assert regccrf.Tagger(model.with_constraint(regccrf.compile("O*"))).tag(X[0]) == ["O", "O", "O"]
    assert regccrf.Tagger(model.with_constraint(regccrf.compile("O*")), unconstrained=True).tag(X[0]) == ["B", "I", "O"]


def test_gold_outside_the_language():
    X, y = corpus()
    y[0] = ["I", "I", "O"]
    with pytest.raises(regccrf.Error):
        regccrf.train(X, y, constraint=BIO)
    for outside in ["skip", "repair"]:
        assert regccrf.Tagger(regccrf.train(X, y, constraint=BIO, outside=outside)).tag(X[2]) == ["B", "O", "B", "I"]
    decode = regccrf.train(X, y, constraint=BIO, constrain="decode")
    assert decode.constrain == "decode"
    assert regccrf.train(X, y, constraint=BIO, constrain="none").constraint is None
    y[0] = ["?", "I", "?"]
    assert "?" not in regccrf.train(X, y, constraint=BIO, unknown="?").labels


def test_progress_is_told_and_stops():
    X, y = corpus()
    seen = []
    regccrf.train(X, y, progress=lambda now: seen.append(now) or len(seen) < 3)
    assert [now["iteration"] for now in seen] == [1, 2, 3]
    assert seen[2]["objective"] < seen[0]["objective"]

    def fail(now):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        regccrf.train(X, y, progress=fail)
    with pytest.raises(TypeError, match="no option 'l3'"):
        regccrf.train(X, y, l3=1)


def test_mistakes_of_a_first_call():
    X, y = [["Ann", "Lee"]], [["B", "I"]]
    with pytest.raises(TypeError, match="did you mean 'constraint'"):
        regccrf.train(X, y, constraints="B I")
    with pytest.raises(ValueError, match="may be 'train'.* given as constraint="):
        regccrf.train(X, y, constrain="B I")
    with pytest.raises(TypeError, match=r"sequence 0: labels are names: .* not 1 \(int\)"):
        regccrf.train(X, [[1, 2]])
    with pytest.raises(ValueError, match=r"labels are the str 'B I', .* labels.split\(\)"):
        regccrf.train(["A L"], ["B I"])


def test_training_continues_from_a_model(tmp_path):
    def objectives(**options):
        seen = []
        model = regccrf.train(X, y, constraint=BIO, progress=lambda now: seen.append(now["objective"]), **options)
        return model, seen

    X, y = corpus()
    first, cold = objectives()
    first.save(tmp_path / "first.model")
    for given in (first, tmp_path / "first.model", str(tmp_path / "first.model")):
        again, warm = objectives(continue_from=given)
        assert len(warm) < len(cold) / 2  # it is at the optimum already
        assert again.features() == pytest.approx(first.features(), abs=1e-3)
    with pytest.raises(regccrf.Error, match="none of this training's weights"):
        regccrf.train([[{"v": "x"}]], [["Z"]], continue_from=first)
    with pytest.raises(regccrf.Error, match="cannot open"):
        regccrf.train(X, y, continue_from=tmp_path / "missing")


def test_other_threads_run_during_training():
    X, y = corpus(3000)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    during = []
    regccrf.train(X, y, max_iterations=20, progress=lambda now: during.append(len(ticks)))
    done.set()
    thread.join()
    assert during[-1] > during[0]


def test_interrupt_ends_training():
    X, y = corpus(2000)

    def press(now):
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            regccrf.train(X, y, progress=press)
    finally:
        signal.signal(signal.SIGINT, before)


def test_one_tagger_serves_many_threads():
    X, y = corpus(400)
    tagger = regccrf.Tagger(regccrf.train(X, y, constraint=BIO, l2=0.01))
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(tagger.tag_all(X))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [y] * 6
    nested = [tagger.tag(x) and x for x in X[:3]]
    assert tagger.tag_all(x for x in nested if tagger.tag(x)) == y[:3]


def test_models_and_taggers_pickle():
    X, y = corpus()
    model = regccrf.train(X, y, constraint=BIO)
    again = pickle.loads(pickle.dumps(model))
    assert again.features() == model.features() and again.constraint == model.constraint
    assert pickle.loads(pickle.dumps(regccrf.Tagger(model))).tag_all(X) == y


def test_labels_of_development_data_are_not_learnt():
    X, y = corpus()
    strange = [["Z" if label == "B" else label for label in labels] for labels in y]
    assert sorted(regccrf.train(X, y, X_dev=X, y_dev=strange, constraint=BIO).labels) == ["B", "I", "O"]
    scores = []
    regccrf.train(X, y, X_dev=X, y_dev=strange, progress=lambda now: scores.append(now["development"]))
    assert max(scores) < 100


def crfsuite_dump(labels, features, transitions):
    """As `crfsuite dump` prints."""
    def section(name, lines):
        return "\n".join([f"{name} = {{", *lines, "}\n"])
    names = list(dict.fromkeys(name for name, _ in features))
    return "\n".join([
        section("FILEHEADER", ["  magic: lCRF"]),
        section("LABELS", [f"  {i:5}: {name}" for i, name in enumerate(labels)]),
        section("ATTRIBUTES", [f"  {i:5}: {name}" for i, name in enumerate(names)]),
        section("TRANSITIONS", [f"  (1) {a} --> {b}: {w:.6f}" for (a, b), w in transitions.items()]),
        section("STATE_FEATURES", [f"  (0) {a} --> {b}: {w:.6f}" for (a, b), w in features.items()]),
    ])


def test_a_dump_whose_names_have_blanks_and_line_ends_in_them(tmp_path):
    names = ["next:endsinpunc:\n", "endsinpunc:\n", "", "a b", "two --> B: 1.0\n\nlines", "w:\r\nx", "(0) ", "last\n"]
    features = {(name, "OBI"[i % 3]): i + 0.5 for i, name in enumerate(names)}
    features[names[1], "I"] = -2.25
    transitions = {("O", "B"): 1.5, ("B", "I"): -0.25}
    (tmp_path / "dump").write_bytes(crfsuite_dump("OBI", features, transitions).encode())
    model = regccrf.Model.import_crfsuite(str(tmp_path / "dump"))
    assert model.features() == features
    assert {pair: weight for pair, weight in model.transitions().items() if weight} == transitions
