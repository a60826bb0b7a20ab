"""What training under `bio` costs beside training without a constraint: CPU seconds an iteration, one thread.

The data are made up, so that this runs everywhere: sentences of 1 to 50 words, spans of 11 types, the attributes of attributes.py; 23 labels. An
iteration's seconds are the CPU time of a run of some iterations less that of a run of one. Runs with and without take turns, and the least
of `--repeats` counts.

    bio.py [--program build/regccrf]
"""
import argparse
import os
import pathlib
import random
import subprocess
import tempfile

import attributes

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPES = [f"T{i}" for i in range(11)]
ITERATIONS = 20


def write_data(path, sentences):
    chance = random.Random(1)
    with open(path, "w", encoding="utf-8") as out:
        for _ in range(sentences):
            words, labels = [], []
            length = chance.randint(1, 50)
            while len(words) < length:
                kind = chance.choice(TYPES) if chance.random() < 0.15 else None
                size = chance.randint(1, 3) if kind else 1
                for i in range(size):
                    number = int(chance.paretovariate(0.8)) % 5000
                    words.append(f"{kind}{number % 400}" if kind and chance.random() < 0.7 else f"w{number}")
                    labels.append("O" if kind is None else f"{'I' if i else 'B'}-{kind}")
            for t, label in enumerate(labels):
                out.write("\t".join([label, *attributes.attributes(words, t)]) + "\n")
            out.write("\n")


def cpu_seconds(command):
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command}: status {process.returncode}")
    return used.ru_utime + used.ru_stime


def measure(program, sentences, repeats):
    """CPU seconds an iteration: {"bio": …, "none": …}."""
    constraints = {"bio": ["-e", "bio({" + " ".join(TYPES) + "})"], "none": []}
    least = {}
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "train"
        write_data(data, sentences)
        for _ in range(repeats):
            for name, constraint in constraints.items():
                for iterations in (1, 1 + ITERATIONS):
                    seconds = cpu_seconds([program, "train", data, "-m", data.with_suffix(".model"), *constraint, "--threads", 1, "--quiet",
                                           "--all-transitions", "--max-iterations", iterations])
                    key = name, iterations
                    least[key] = min(seconds, least.get(key, seconds))
    return {name: (least[name, 1 + ITERATIONS] - least[name, 1]) / ITERATIONS for name in constraints}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build" / "regccrf")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    seconds = measure(options.program, options.sentences, options.repeats)
    print(f"CPU ms an iteration: bio {1000 * seconds['bio']:.1f}, none {1000 * seconds['none']:.1f}, ratio {seconds['bio'] / seconds['none']:.2f}")


if __name__ == "__main__":
    main()
