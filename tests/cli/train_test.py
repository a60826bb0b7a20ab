"""`regccrf train` as a user meets it: what it says, what it refuses, what it leaves behind.

REGCCRF_PROGRAM names the program, build/regccrf by default.
"""
import json
import os
import re
import resource
import shutil
import signal
import statistics
import struct
import subprocess

import pytest

from kill_test import corpus, tensors
from needs import PROGRAM

LANGUAGE = "bio({X Y})"

pytestmark = pytest.mark.usefixtures("program")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train").write_text(corpus(60, 1))
    (tmp_path / "dev").write_text(corpus(20, 2))
    (tmp_path / "bad").write_text("a\tI-X\nb\tO\n\nc\tB-X\nd\tI-Y\n")
    return tmp_path


def run(folder, *arguments, text=None):
    return subprocess.run([PROGRAM, "train", *map(str, arguments)], cwd=folder, input=text, capture_output=True,
                          text=True, timeout=120, check=False)


def train(folder, *arguments, text=None):
    done = run(folder, *arguments, "--json", text=text)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(folder, *arguments):
    done = run(folder, *arguments)
    assert done.returncode == 2 and not done.stdout
    assert "regccrf: error: " in done.stderr
    assert not (folder / "m").exists()
    return done.stderr


def test_says_what_came_out(folder):
    facts = train(folder, "train", "-m", "m", "-e", LANGUAGE, "--dev", "dev", "--patience", "3")
    assert facts["model"] == "m" and (folder / "m").stat().st_size > 0
    assert facts["sequences"] == 60 and facts["labels"] == 5 and facts["constrain"] == "train" and facts["outside"] == 0
    assert facts["objective"] > 0 and 0 < facts["development"] <= 100 and facts["iteration"] <= facts["iterations"]


@pytest.mark.parametrize("gold, score", [(str, "F1"), (lambda text: re.sub(r"\t[BI]-.", "\tO", text), "accuracy")])
def test_the_development_score_is_named(folder, gold, score):
    (folder / "dev").write_text(gold((folder / "dev").read_text()))
    done = run(folder, "train", "-m", "m", "--dev", "dev", "--max-iterations", "3")
    assert done.stderr.count(f"development {score} ") == 4, done.stderr  # every iteration's, and the best
    assert train(folder, "train", "-m", "m", "--dev", "dev", "--max-iterations", "3")["development_score"] == score
    table = run(folder, "dev", "--cv", "2", "--l2", "1,2", "--max-iterations", "3").stdout
    assert f"mean {score}" in table


def test_the_constraint_makes_gold_likelier(folder):
    constrained = train(folder, "train", "-m", "m", "-e", LANGUAGE)
    decode = train(folder, "train", "-m", "m", "-e", LANGUAGE, "--constrain", "decode")
    plain = train(folder, "train", "-m", "m")
    assert constrained["objective"] < decode["objective"]
    assert decode["objective"] == pytest.approx(plain["objective"])  # the same labels, trained in the same way


def test_progress_goes_to_standard_error_in_lines(folder):
    done = run(folder, "train", "-m", "m", "--max-iterations", "3")
    assert done.returncode == 0 and not done.stdout and "\r" not in done.stderr
    assert [line.split()[1] for line in done.stderr.splitlines() if line.startswith("iteration")] == ["1", "2", "3"]
    assert "5 labels (" in done.stderr
    assert not run(folder, "train", "-m", "m", "--max-iterations", "3", "--quiet").stderr
    endless = run(folder, "train", "-m", "m", "--max-iterations", "40", "--tolerance", "0")
    assert "left" in endless.stderr and "inf" not in endless.stderr


def test_standard_input_and_several_files(folder):
    two = train(folder, "train", "dev", "-m", "m")
    one = train(folder, "-", "-m", "m", text=(folder / "train").read_text() + "\n" + (folder / "dev").read_text())
    assert two["objective"] == one["objective"] and two["sequences"] == 80


def test_gold_outside_the_language(folder):
    message = refused(folder, "train", "bad", "-m", "m", "-e", LANGUAGE)
    assert "2 of 62 training sequences are outside" in message
    assert "bad, line 1: I-X at the start" in message and "bad, line 5: I-Y after B-X" in message
    for option in ("--outside skip", "--outside repair", "--constrain decode"):
        assert option in message
    skipped = train(folder, "train", "bad", "-m", "m", "-e", LANGUAGE, "--outside", "skip")
    assert skipped["sequences"] == 60 and skipped["skipped"] == 2
    repaired = train(folder, "train", "bad", "-m", "m", "-e", LANGUAGE, "--outside", "repair")
    assert repaired["sequences"] == 62 and repaired["repaired_labels"] == 2
    assert train(folder, "train", "bad", "-m", "m", "-e", LANGUAGE, "--constrain", "decode")["sequences"] == 62


def test_text_that_is_not_utf8(folder):
    for content, says in ((b"a\tO\ncaf\xe9\tO\n", "line 2, byte 4: 0xE9 is not UTF-8"), (b"a\tO\n\0\tO\n", "line 2, byte 1: a NUL")):
        (folder / "foreign").write_bytes(content)
        message = refused(folder, "foreign", "-m", "m")
        assert "foreign, " + says in message and "iconv -f " in message
        assert "foreign, " + says in refused(folder, "train", "-m", "m", "--dev", "foreign")
    assert train(folder, "-", "-m", "m", text="café\tB-Größe\n😀\tO\n")["labels"] == 2


def test_a_label_that_the_language_lacks(folder):
    message = refused(folder, "train", "-m", "m", "-e", "bio({X Z})")
    assert "B-Y" in message and "did you mean" in message
    (folder / "bioes").write_text("a\tB-X\nb\tE-X\n\nc\tS-X\n")
    message = refused(folder, "bioes", "-m", "m", "-e", "bio({X})")
    assert "looks like BIOES" in message and "did you mean" not in message
    (folder / "labels-first").write_text("B-X\tAnn\nI-X\tLee\n")
    assert "is --label-column right?" in refused(folder, "labels-first", "-m", "m", "-e", "bio({X})")


def test_a_table_with_commas(folder):
    (folder / "table").write_text("Ann,B-X\nLee,I-X\n")
    assert "not by commas" in refused(folder, "table", "-m", "m")


def test_a_label_of_the_pattern_that_no_sequence_has(folder):
    says = "no sequence of the language has the label B-YY: did you mean B-Y?\n"
    done = run(folder, "train", "-m", "m", "-e", LANGUAGE + " & at_most(9, B-YY)")
    assert done.returncode == 0 and says in done.stderr
    assert "no sequence" not in run(folder, "train", "-m", "m", "-e", LANGUAGE).stderr
    done = subprocess.run([PROGRAM, "compile", "-e", "bio({Y}) & at_most(9, B-YY)"], capture_output=True, text=True, check=True)
    assert "\nunused         B-YY   (" in done.stdout


def test_a_label_that_only_development_data_has(folder):
    text = (folder / "dev").read_text()
    (folder / "more").write_text(text.replace("\tB-Y", "\tB-Z", 1).replace("\tO", "\tB-Q", 1))
    for language in ([], ["-e", LANGUAGE], ["-e", "!(.* I-X I-X I-X I-X .*)"]):
        for dev in ("dev", "more"):
            done = run(folder, "train", "-m", dev + ".m", *language, "--dev", dev, "--max-iterations", "8")
            assert done.returncode == 0, done.stderr
            last = [line.split() for line in done.stderr.splitlines() if line.startswith("iteration")][-1]
            (folder / (dev + ".score")).write_text(last[last.index("F1") + 1])
        assert "(2 positions): B-Q, B-Z" in done.stderr or "(2 positions): B-Z, B-Q" in done.stderr
        lines = [json.loads(subprocess.run([PROGRAM, "inspect", "--json", folder / (dev + ".m")], capture_output=True,
                                           check=True).stdout)["labels"] for dev in ("dev", "more")]
        assert lines[0] == lines[1] and "B-Z" not in lines[1]
        assert float((folder / "more.score").read_text()) < float((folder / "dev.score").read_text())


def test_continuing_from_a_model(folder):
    first = train(folder, "train", "-m", "old", "-e", LANGUAGE)
    # From its own optimum there is nothing left to do; the labels' order does not matter.
    again = train(folder, "train", "-m", "again", "-e", "bio({Y X})", "--continue-from", "old")
    assert again["iterations"] < first["iterations"] / 4
    assert again["objective"] == pytest.approx(first["objective"], rel=1e-4) and again["continued_from"] == "old"
    # Other data has other weights, and may have other labels.
    (folder / "new").write_text((folder / "dev").read_text() + "\nw5Q\tB-Q\n")
    far = run(folder, "new", "-m", "m", "--continue-from", "old", "--max-iterations", "2")
    taken = re.search(r"(\d+) of (\d+) weights began with those of old; it has none for the other (\d+), which start at 0", far.stderr)
    assert far.returncode == 0 and 0 < int(taken[1]) < first["weights"] and int(taken[1]) + int(taken[3]) == int(taken[2]), far.stderr
    assert train(folder, "new", "-m", "m")["objective"] == pytest.approx(
        train(folder, "new", "-m", "m", "--continue-from", "old")["objective"], rel=1e-3)


def test_a_model_with_nothing_in_common(folder):
    (folder / "numbers").write_text("1 ONE\n2 TWO\n")
    train(folder, "numbers", "-m", "old")
    assert "none of this training's weights" in refused(folder, "train", "-m", "m", "--continue-from", "old")
    assert "cannot open" in refused(folder, "train", "-m", "m", "--continue-from", "missing")


def folds_by_hand(folder, folds, *options):
    """F1 of each fold, by training, tagging and evaluating in the plain way."""
    sentences = (folder / "train").read_text().strip().split("\n\n")
    scores = []
    for fold in range(folds):
        (folder / "rest").write_text("\n\n".join(s for i, s in enumerate(sentences) if i % folds != fold))
        (folder / "out").write_text("\n\n".join(sentences[fold::folds]) + "\n")
        train(folder, "rest", "-m", "fold.model", *options)
        tagged = subprocess.run([PROGRAM, "tag", "-m", "fold.model", "out"], cwd=folder, capture_output=True, text=True,
                                check=True).stdout
        report = subprocess.run([PROGRAM, "eval", "-", "--json"], cwd=folder, input=tagged, capture_output=True,
                                text=True, check=True).stdout
        scores.append(json.loads(report)["systems"][0]["f1"])
    return scores


TURNS = "a A\nkeep A\nturn B\n\nb B\nturn A\nkeep A\n\nb B\nkeep B\nturn A\n\na A\nturn B\nkeep B\n"
PAIRS = "U00:%x[0,0]\nB\nB01:%x[0,0]\n"


@pytest.mark.parametrize("how", [[], ["--optimizer", "adagrad", "--max-iterations", "200"], ["-e", "!(.* A A A A .*)"], ["--l1", "0.001"]])
def test_transitions_that_depend_on_the_input(folder, how):
    (folder / "turns").write_text(TURNS)
    (folder / "template").write_text(PAIRS)
    facts = train(folder, "turns", "-m", "m", "--template", "template", "--l2", "0.001", "--dev", "turns", *how)
    assert facts["pairs"] > 0 and facts["development"] == 100

    def tagged(*options):
        return subprocess.run([PROGRAM, "tag", "-m", "m", *options], cwd=folder, input="b\nturn\nkeep\nturn\nturn\n", capture_output=True,
                              text=True, timeout=60, check=True).stdout

    assert tagged("--labels-only").split() == ["B", "A", "A", "B", "A"]
    first = tagged("--k-best", "3", "--scores", "--marginals", "--language-mass").splitlines()[0].split()
    marginals = [float(field.split(":")[1]) for field in first[-2:]]
    assert len(first) == 11 and first[1] == "B" and sum(marginals) == pytest.approx(1, abs=1e-4)
    dump = subprocess.run([PROGRAM, "inspect", "m", "--dump"], cwd=folder, capture_output=True, text=True, check=True).stdout
    weights = {tuple(line.split("\t")[1:4]): float(line.split("\t")[4]) for line in dump.splitlines() if line.startswith("pair\t")}
    assert weights["B01:turn", "A", "B"] > 0 and len(weights) == facts["pairs"]


# A template without %x in its B line is the same model for the same price as before.
def test_a_plain_b_template_has_no_pairs(folder):
    (folder / "turns").write_text(TURNS)
    (folder / "template").write_text("U00:%x[0,0]\nB\n")
    facts = train(folder, "turns", "-m", "m", "--template", "template", "--dev", "turns")
    assert "pairs" not in facts and facts["transitions"] == 4 and facts["development"] < 100


def test_pairs_go_on_from_a_model_and_a_checkpoint(folder):
    (folder / "turns").write_text(TURNS)
    (folder / "template").write_text(PAIRS)
    how = ["--template", "template", "--l2", "0.01"]
    whole = train(folder, "turns", "-m", "m", *how, "--checkpoint", "c", "--every", "5")
    train(folder, "turns", "-m", "part", *how, "--checkpoint", "d", "--every", "5", "--max-iterations", "5")
    rest = train(folder, "turns", "-m", "n", *how, "--checkpoint", "d", "--every", "5", "--resume")
    assert rest["objective"] == whole["objective"] and rest["iterations"] == whole["iterations"]
    again = train(folder, "turns", "-m", "again", *how, "--continue-from", "m")
    assert again["iterations"] <= 2
    assert json.loads(run(folder, "turns", "--cv", "2", *how, "--json").stdout)["trials"]


def test_cross_validation(folder):
    options = ["-e", LANGUAGE, "--max-iterations", "5"]
    (trial,) = json.loads(run(folder, "train", "--cv", "3", "--json", *options).stdout)["trials"]
    assert trial["scores"] == pytest.approx(folds_by_hand(folder, 3, *options), abs=0.01)
    assert trial["mean"] == pytest.approx(statistics.mean(trial["scores"]))
    assert trial["deviation"] == pytest.approx(statistics.stdev(trial["scores"]))
    table = run(folder, "train", "--cv", "3", "--quiet", *options).stdout.splitlines()
    assert [row.split() for row in table] == [["l2", "mean", "F1", "deviation"],
                                             ["1", f"{trial['mean']:.2f}", f"{trial['deviation']:.2f}"]]


def test_a_penalty_is_chosen(folder):
    options = ["--l2", "0.01,5,1000", "--max-iterations", "6"]
    for judge in (["--cv", "3"], ["--dev", "dev"]):
        facts = train(folder, "train", "-m", "m", *options, *judge)
        means = {trial["l2"]: trial["mean"] for trial in facts["trials"]}
        best = max(l2 for l2, mean in means.items() if mean == max(means.values()))  # of equal ones the largest
        assert len(means) == 3 and facts["l2"] == best and best < 1000
        dev = judge if judge[0] == "--dev" else []
        train(folder, "train", "-m", "direct", "--l2", best, "--max-iterations", "6", *dev)
        assert (folder / "m").read_bytes() == (folder / "direct").read_bytes()


def test_what_a_search_needs(folder):
    assert "--dev FILE or --cv N" in refused(folder, "train", "-m", "m", "--l2", "1,2")
    assert "leave one of them out" in refused(folder, "train", "-m", "m", "--cv", "3", "--dev", "dev")
    assert "--checkpoint is for one" in refused(folder, "train", "-m", "m", "--cv", "3", "--checkpoint", "c")
    assert "-m FILE" in refused(folder, "train")
    assert "61 folds of 60 sequences" in refused(folder, "train", "--cv", "61")


def test_a_signal_ends_a_search(folder):
    got, said = interrupt(folder, signal.SIGTERM, "l2 1: fold 1", "train", "--cv", "60", "--l2", "1,2,3")
    assert got == 143 and "no trial was complete" in said


def test_labels_of_the_language_that_the_data_lacks(folder):
    done = run(folder, "train", "-m", "m", "-e", "bio({X Y Z})", "--max-iterations", "2")
    assert done.returncode == 0 and "never seen in training" in done.stderr and "B-Z, I-Z" in done.stderr


def test_unknown_gold(folder):
    text = (folder / "train").read_text().replace("\tB-Y", "\t?", 5)
    facts = train(folder, "-", "-m", "m", "-e", LANGUAGE, "--unknown", "?", text=text)
    assert facts["unknown_gold"] == 5 and facts["labels"] == 5


def test_refusals_say_what_to_do(folder):
    assert "there is no folder" in refused(folder, "train", "-m", "no/m")
    assert "--constraint FILE or -e PATTERN" in refused(folder, "train", "-m", "m", "--constrain", "train")
    assert "no sequence" in refused(folder, "/dev/null", "-m", "m")
    assert "cannot open" in refused(folder, "missing", "-m", "m")
    assert "counted from 1" in refused(folder, "missing", "-m", "m", "--label-column", "0")
    assert "needs a development set" in refused(folder, "train", "-m", "m", "--patience", "3")
    for empty in ("-e", "-c"):  # a shell's variable that is not set
        assert "is empty" in refused(folder, "train", "-m", "m", empty, "")
    assert "-e takes a pattern; give it with -c" in refused(folder, "train", "-m", "m", "-e", "no.lang")
    assert "Value -1 is negative" in refused(folder, "train", "-m", "m", "--l2", "-1")
    assert "has 2 columns, but the features use column 5" in refused(folder, "train", "-m", "m", "--columns", "5")
    assert "lbfgs does" in refused(folder, "train", "-m", "m", "--optimizer", "adagrad", "--l1", "1")


def test_a_place_that_cannot_be_written_is_found_before_training(folder):
    for option in ("-m", "--checkpoint"):
        for place, what in (("no/such", "there is no folder"), ("/proc/such", "cannot write"), (".", "is a folder")):
            model = [] if option == "-m" else ["-m", "m"]
            message = refused(folder, "train", *model, option, place)
            assert what in message and "iteration" not in message, message


def test_input_is_not_overwritten(folder):
    before = (folder / "train").read_bytes()
    for arguments in (("-m", "train"), ("-m", "./train"), ("-m", "m", "--checkpoint", "train"), ("-m", "dev", "--dev", "dev")):
        assert "would be overwritten" in refused(folder, "train", *arguments)
    assert (folder / "train").read_bytes() == before


def test_other_outputs_are_checked_first(folder):
    for command in (["import", "missing", "-m"], ["compile", "missing", "-o"], ["compile", "missing", "--svg"],
                    ["reproduce", "figure2", "--seeds", "1000", "--svg"]):
        done = subprocess.run([PROGRAM, *command, "no/such"], cwd=folder, capture_output=True, text=True, timeout=60,
                              check=False)
        assert done.returncode == 2 and "there is no folder" in done.stderr, done.stderr


def test_a_link_stays_and_its_target_is_written(folder):
    (folder / "models").mkdir()
    (folder / "m").symlink_to("models/first")  # not there yet
    for iterations in ("1", "2"):
        train(folder, "train", "-m", "m", "--max-iterations", iterations)
        assert (folder / "m").is_symlink()
        assert [path.name for path in (folder / "models").iterdir()] == ["first"]
    assert tensors(folder / "models" / "first")["features.weight"][2]


def test_parts_of_killed_processes_are_removed(folder):
    gone = subprocess.Popen(["true"])
    gone.wait()
    kept = {f"m.part{os.getpid()}", "m.partial", f"other.part{gone.pid}"}
    for name in kept | {f"m.part{gone.pid}"}:
        (folder / name).touch()
    train(folder, "train", "-m", "m", "--max-iterations", "1")
    assert {path.name for path in folder.iterdir() if ".part" in path.name} == kept


def test_a_checkpoint_of_other_work(folder):
    train(folder, "train", "-m", "m", "--checkpoint", "c", "--every", "2", "--max-iterations", "5")
    (folder / "m").unlink()
    message = refused(folder, "train", "-m", "m", "--checkpoint", "c", "--every", "2", "--resume", "--l2", "0.25")
    assert "l2 was 1, is 0.25" in message
    (folder / "c").write_bytes((folder / "c").read_bytes()[:100])
    refused(folder, "train", "-m", "m", "--checkpoint", "c", "--every", "2", "--resume")


def interrupt(folder, how, after, *arguments):
    """Starts training, sends the signal behind the first line that begins so; gives status and message."""
    process = subprocess.Popen([PROGRAM, "train", *arguments], cwd=folder, stderr=subprocess.PIPE, text=True)
    while not process.stderr.readline().startswith(after):
        assert process.poll() is None
    process.send_signal(how)
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


@pytest.mark.parametrize("how, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_the_best_so_far(folder, how, status):
    got, said = interrupt(folder, how, "iteration", "train", "-m", "m", "--tolerance", "0", "--optimizer", "adagrad")
    assert got == status and "(interrupted)" in said
    assert tensors(folder / "m")["features.weight"][2]


def many_labels(sentences, K):
    """Data on which an iteration takes long."""
    return "\n\n".join("\n".join(f"w{i} L{(i * 7 + t) % K}" for t in range(20)) for i in range(sentences))


@pytest.mark.parametrize("optimizer", ["lbfgs", "adagrad"])
def test_a_signal_is_heard_within_an_iteration(folder, optimizer):
    (folder / "many").write_text(many_labels(1500, 700))
    options = ["many", "--optimizer", optimizer, "--batch", "1", "--threads", "1"]
    (folder / "m").write_text("old")
    got, said = interrupt(folder, signal.SIGTERM, "1500 sequences", *options, "-m", "m")
    assert got == 143
    assert "no iteration was complete" in said and (folder / "m").read_text() == "old"


def said_before_training(folder, *arguments, memory=None):
    """What is said up to the time of an iteration; then training is ended."""
    limit = (lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory))) if memory else None
    process = subprocess.Popen([PROGRAM, "train", *arguments], cwd=folder, stderr=subprocess.PIPE, text=True,
                               preexec_fn=limit)
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith(("an iteration takes", "iteration    1")):
            process.terminate()
    process.wait(timeout=60)
    return "".join(said)


def test_large_work_is_told_before_it_begins(folder):
    (folder / "many").write_text(many_labels(4000, 3000))
    said = said_before_training(folder, "many", "-m", "m", "--threads", "2", memory=500_000_000)
    assert re.search(r"warning: about \d\.\d GB of memory are needed, and \d\.\d GB are free", said), said
    assert "--threads 1 takes less" in said
    said = said_before_training(folder, "many", "-m", "m", "--threads", "2")
    assert re.search(r"an iteration takes about \d", said), said
    assert "3000 labels take 9000000 products a position" in said and "fewer labels" in said


def test_small_work_is_not_spoken_of(folder):
    said = run(folder, "train", "-m", "m", "-e", LANGUAGE).stderr
    assert "warning" not in said and "memory" not in said and "takes about" not in said


@pytest.mark.parametrize("optimizer", ["lbfgs", "adagrad"])
def test_an_iteration_that_is_cut_off_leaves_the_one_before(folder, optimizer):
    (folder / "many").write_text(many_labels(400, 300))
    options = ["many", "--optimizer", optimizer, "--tolerance", "0", "--dev", "dev"]
    got, said = interrupt(folder, signal.SIGTERM, "iteration    2", *options, "-m", "m")
    iterations = int(said.split("after ")[1].split()[0])
    train(folder, *options, "-m", "whole", "--max-iterations", str(iterations))
    assert got == 143 and tensors(folder / "m") == tensors(folder / "whole")


def test_the_same_run_gives_the_same_bytes(folder):
    for threads in ("1", "2"):
        train(folder, "train", "-m", f"m{threads}", "-e", LANGUAGE, "--dev", "dev", "--threads", threads)
    assert (folder / "m1").read_bytes() == (folder / "m2").read_bytes()


def test_threads_do_not_matter(folder):
    for threads in ("1", "3"):
        train(folder, "train", "-m", f"m{threads}", "--threads", threads)
    assert tensors(folder / "m1") == tensors(folder / "m3")


def train_by_two(folder, *arguments):
    """By two processes, of which one speaks."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    command = ["mpirun", "--oversubscribe", "-n", "2", PROGRAM, "train", *arguments, "--threads", "1", "--json", "--quiet"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def expect_near_weights(folder, one, two, distance):
    weights = [tensors(folder / name)["features.weight"][2] for name in (one, two)]
    numbers = [struct.unpack(f"<{len(w) // 8}d", w) for w in weights]
    assert numbers[1] == pytest.approx(numbers[0], abs=distance)


@pytest.mark.usefixtures("mpi")
def test_two_processes_are_as_good_as_one(folder):
    one = train(folder, "train", "-m", "one", "-e", LANGUAGE, "--dev", "dev")
    two = train_by_two(folder, "train", "-m", "two", "-e", LANGUAGE, "--dev", "dev")
    assert two["processes"] == 2 and two["sequences"] == 60
    assert two["objective"] == pytest.approx(one["objective"], rel=1e-7)
    assert two["iterations"] == one["iterations"]
    expect_near_weights(folder, "one", "two", 1e-5)


RULES = ["-e", "bio({X Y}) & at_most(6, B-X) & at_most(6, B-Y)", "--outside", "skip", "--rules"]


@pytest.mark.usefixtures("mpi")
def test_two_processes_train_under_kept_rules(folder):
    """To the same objective as one, and as the language multiplied out, as far as the gaps allow."""
    options = [*RULES, "all", "--max-gap", "1e-5"]
    one = train(folder, "train", "-m", "one", *options)
    two = train_by_two(folder, "train", "-m", "two", *options)
    whole = train(folder, "train", "-m", "whole", *RULES, "none")
    assert two["processes"] == 2 and two["sequences"] == one["sequences"] == whole["sequences"]
    assert two["uncertified"] == one["uncertified"] == 0 and 0 < two["largest_gap"] <= 1e-5
    for other in (one, whole):
        within = one["slack"] + two["slack"] + 1e-4 * one["objective"]  # --tolerance ends training somewhere near
        assert two["objective"] == pytest.approx(other["objective"], abs=within)
    expect_near_weights(folder, "one", "two", 0.02)


@pytest.mark.parametrize("max_gap", ["0", "-1", "nan", "inf", "small"])
def test_gaps_that_are_none_are_refused(folder, max_gap):
    said = refused(folder, "train", "-m", "m", *RULES, "all", "--max-gap", max_gap)
    assert "max" in said and "gap" in said and ("number" in said or max_gap == "0" and "positive" in said)


def test_what_is_only_a_bound_is_counted(folder):
    """Nothing in the input tells the labels, so hardly any sum under the rules can be certain."""
    labels = ["O" if t % 3 else f"B-{'ABCDEFGHIJKLMN'[t // 3]}" for t in range(42)]
    (folder / "flat").write_text("\n".join("".join(f"w\t{a}\n" for a in labels) for _ in range(200)))
    language = "(O | any t in {A B C D E F G H I J K L M N}: B-{t})* & all t in {A B C D E F G H I J K L M N}: at_most(1, B-{t})"
    done = run(folder, "flat", "-m", "m", "-e", language, "--rules", "all", "--max-iterations", "8", "--l2", "10")
    assert done.returncode == 0 and "200 sequences counted with the loss of the base, an upper bound" in done.stderr


def test_a_model_from_before_the_rules(folder):
    """Training was too short; or what is learnt later does not help with these development data."""
    short = run(folder, "train", "-m", "m", *RULES, "all", "--max-iterations", "1")
    assert "under the base alone: training ended before the rules had a part in it" in short.stderr
    words = {line.split("\t")[0] for line in (folder / "train").read_text().splitlines() if "\tB-" in line}
    (folder / "other").write_text("\n\n".join(f"{word}\tO" for word in sorted(words)))
    done = run(folder, "train", "-m", "m", *RULES, "all", "--dev", "other")
    assert "under the base alone: later iterations did no better on the development set" in done.stderr, done.stderr


def test_rules_that_no_sequence_can_obey(folder):
    """Sequences are too short for them."""
    language = ["-e", "bio({X Y}) & exactly(40, B-X)", "--rules", "all"]
    assert "ends too early, after" in refused(folder, "train", "-m", "m", *language)
    assert "no training sequence is left" in refused(folder, "train", "-m", "m", *language, "--outside", "skip")
    assert "the language has no sequence of that length" in refused(folder, "train", "-m", "m", *language, "--outside", "repair")


def test_a_slip_in_the_pattern_is_named_when_data_are_illegal(folder):
    (folder / "references").write_text("Gauss author\n1801 date\n\nArs title\n1825 date\n")
    said = refused(folder, "references", "-m", "m", "-e", ".* & at_least(1, dates)")
    assert "the language has the label dates, which the data does not have: did you mean date?" in said
    assert "did you mean" not in refused(folder, "references", "-m", "m", "-e", ".* & at_least(1, publisher)")


def test_under_mpirun_without_its_part(folder):
    program = folder / "regccrf"
    shutil.copy(PROGRAM, program)
    environment = dict(os.environ, OMPI_COMM_WORLD_SIZE="2")
    done = subprocess.run([program, "train", "train", "-m", "m"], cwd=folder, env=environment, capture_output=True,
                          text=True, timeout=60, check=False)
    assert done.returncode == 2 and "MPI part cannot be loaded" in done.stderr
