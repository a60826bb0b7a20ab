#!/usr/bin/env python3
"""Semantic role labelling with a neural encoder and our CRF layer: the four models of the paper's Table 2, and the
rich language.

An instance is a sentence with one predicate marked: a special token stands before it, and where the encoder knows two
types of token it has the second. A linear projection of each word's first subtoken gives the emissions. All
parameters are trained together by the negative log-likelihood, under the constraint or without.

Each (model, seed) is a job; jobs run in `--workers` processes that share the device. Whatever has been finished
stands in OUTPUT/neural.json, with every output in OUTPUT/predictions.npz, so that it can be scored again. Jobs of
several runs go together with `merge.py`; what a step and decoding take is the business of `neural_times.py`.

    experiments/srl/neural.py --output build/srl                              our setting
    experiments/srl/neural.py --configuration paper --data FOLDER …           the paper's, with RoBERTa and OntoNotes
    experiments/srl/neural.py --lacking REPORT --output build/srl             only the jobs that a report lacks
    experiments/srl/neural.py --models crf-all regccrf-full --output …        all roles, all rules
    experiments/srl/neural.py --limit 200 --epochs 1 --seeds 1 --output …     does it run?
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import os
import platform
import queue
import sys
import time
import traceback
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import corpus  # noqa: E402
from configuration import CONFIGURATIONS, DATA, ROOT, Configuration  # noqa: E402
from models import MODELS, Languages, Trained, gold_labels, judge, outside  # noqa: E402

GLOVE = "glove"


# --- instances as arrays ----------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Arrays:
    """Instances, padded. S subtokens, T words."""

    ids: np.ndarray  # [N, S]
    types: np.ndarray  # [N, S] 1 for the predicate
    subtokens: np.ndarray  # [N]
    first: np.ndarray  # [N, T] where each word's first subtoken stands
    words: np.ndarray  # [N]

    def subset(self, which: np.ndarray) -> Arrays:
        return Arrays(*(getattr(self, field.name)[which] for field in dataclasses.fields(self)))


class TransformerText:
    """Words to subtokens by the encoder's own tokeniser."""

    def __init__(self, encoder: str) -> None:
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(encoder, use_fast=True, add_prefix_space=True)

    def pieces(self, sentences: Sequence[corpus.Sentence]) -> List[List[List[int]]]:
        """Of every sentence, of every word: its subtokens, at least one."""
        encoded = self.tokenizer(
            [s.forms for s in sentences],
            is_split_into_words=True,
            add_special_tokens=False,
            truncation=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        result = []
        for i, sentence in enumerate(sentences):
            words: List[List[int]] = [[] for _ in sentence.forms]
            for word, piece in zip(encoded.word_ids(i), encoded["input_ids"][i]):
                words[word].append(piece)
            result.append([word or [self.tokenizer.unk_token_id] for word in words])
        return result

    def instance(self, pieces: List[List[int]], predicate: int):
        """Ids, types, and the words' first positions, the predicate prefixed by the unknown token as in the paper."""
        ids, types, first = [self.tokenizer.cls_token_id], [0], []
        for t, word in enumerate(pieces):
            marked = t == predicate
            if marked:
                ids.append(self.tokenizer.unk_token_id)
                types.append(0)
            first.append(len(ids))
            ids += word
            types += [int(marked)] * len(word)
        return ids + [self.tokenizer.sep_token_id], types + [0], first


class GloveText:
    """Words to rows of the word vectors: 0 is padding, 1 an unknown word."""

    def __init__(self, folder: Path) -> None:
        file = folder / "glove6B_100d_subset.words.txt"
        if not file.is_file():
            raise corpus.Absent(f"there are no word vectors at {file}")
        self.rows = {word: i + 2 for i, word in enumerate(file.read_text(encoding="utf-8").split("\n"))}

    def pieces(self, sentences):
        return [[[self.rows.get(form.lower(), 1)] for form in s.forms] for s in sentences]

    def instance(self, pieces, predicate):
        return [word[0] for word in pieces], [int(t == predicate) for t in range(len(pieces))], list(range(len(pieces)))


def arrays_of(instances: Sequence[corpus.Instance], text) -> Arrays:
    sentences = list({id(i.sentence): i.sentence for i in instances}.values())
    pieces = {id(s): p for s, p in zip(sentences, text.pieces(sentences))}
    rows = [text.instance(pieces[id(i.sentence)], i.predicate) for i in instances]
    subtokens, words = np.array([len(r[0]) for r in rows]), np.array([len(r[2]) for r in rows])
    ids, types, first = (np.zeros((len(rows), n.max()), np.int64) for n in (subtokens, subtokens, words))
    for n, row in enumerate(rows):
        for array, values in zip((ids, types, first), row):
            array[n, : len(values)] = values
    return Arrays(ids, types, subtokens, first, words)


# --- the model --------------------------------------------------------------------------------------------------------


def make_tagger(encoder: str, labels: Sequence[str], constraint, embeddings: Path, max_gap: float):
    import torch
    from torch import nn

    from regccrf import Constraint, Labels
    from regccrf.torch import RegCCRF

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            from transformers import AutoModel, logging

            logging.set_verbosity_error()
            logging.disable_progress_bar()
            self.inner = AutoModel.from_pretrained(encoder, dtype=torch.float32, add_pooling_layer=False)
            self.width = self.inner.config.hidden_size
            self.two_types = getattr(self.inner.config, "type_vocab_size", 1) > 1

        def forward(self, ids, types, present):
            types = types if self.two_types else torch.zeros_like(types)
            return self.inner(input_ids=ids, token_type_ids=types, attention_mask=present).last_hidden_state

    class Recurrent(nn.Module):
        """Word vectors, a mark for the predicate, two bidirectional LSTM layers."""

        def __init__(self) -> None:
            super().__init__()
            vectors = np.fromfile(embeddings / "glove6B_100d_subset.f16", "<f2").reshape(-1, 100).astype(np.float32)
            self.words = nn.Embedding.from_pretrained(
                torch.from_numpy(np.vstack([np.zeros((2, 100), np.float32), vectors])), freeze=False
            )
            self.mark = nn.Embedding(2, 100)
            self.lstm = nn.LSTM(200, 256, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
            self.width = 512

        def forward(self, ids, types, present):
            return self.lstm(torch.cat([self.words(ids), self.mark(types)], -1))[0]

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = Recurrent() if encoder == GLOVE else Transformer()
            self.emit = nn.Linear(self.encoder.width, len(labels))
            names = Labels(list(labels))
            self.crf = RegCCRF(
                names,
                constraint or Constraint.unconstrained(names),
                batch_first=True,
                start_end=False,
                max_gap=max_gap,  # counts where rules are kept beside a base
                uncertified="bound",
            )
            nn.init.normal_(self.crf.transitions, std=0.1)

        def emissions(self, ids, types, present, first):
            """[B, T, K]"""
            half = torch.autocast("cuda", torch.bfloat16) if ids.is_cuda else contextlib.nullcontext()
            with half:
                hidden = self.encoder(ids, types, present)
            words = hidden.gather(1, first.unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))
            return self.emit(words.float())

    return Tagger()


class OnDevice:
    """Arrays on the device, and batches of them cut to their longest instance."""

    def __init__(self, arrays: Arrays, device, labels: Optional[np.ndarray] = None) -> None:
        import torch

        move = lambda array: torch.from_numpy(array).to(device)
        self.arrays, self.device = arrays, device
        self.ids, self.types, self.first = move(arrays.ids), move(arrays.types), move(arrays.first)
        self.subtokens, self.words = move(arrays.subtokens), move(arrays.words)
        self.labels = None if labels is None else move(labels)

    def batch(self, which: np.ndarray):
        """Inputs of `Tagger.emissions`, the words' mask [B, T], gold [B, T] where there is one."""
        import torch

        S, T = int(self.arrays.subtokens[which].max()), int(self.arrays.words[which].max())
        rows = torch.from_numpy(which).to(self.device, non_blocking=True)
        present = torch.arange(S, device=self.device) < self.subtokens[rows, None]
        mask = torch.arange(T, device=self.device) < self.words[rows, None]
        inputs = self.ids[rows, :S], self.types[rows, :S], present.long(), self.first[rows, :T]
        return inputs, mask, None if self.labels is None else self.labels[rows, :T]


def shuffled_batches(lengths: np.ndarray, batch: int, random: np.random.Generator) -> List[np.ndarray]:
    """Batches of instances of about the same length, in random order."""
    order = random.permutation(len(lengths))
    result = []
    for pool in np.array_split(order, max(1, len(order) // (batch * 50))):
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        result += [pool[i : i + batch] for i in range(0, len(pool), batch)]
    return [result[i] for i in random.permutation(len(result))]


# --- jobs -------------------------------------------------------------------------------------------------------------


class Experiment:
    """What every job needs: the corpus as arrays, the languages, the options."""

    def __init__(self, configuration: Configuration, options: argparse.Namespace) -> None:
        self.configuration, self.options = configuration, options
        self.languages = Languages(configuration)
        self.instances, self.arrays = {}, {}
        text = GloveText(options.embeddings) if options.encoder == GLOVE else TransformerText(options.encoder)
        for part in corpus.PARTS:
            self.instances[part] = corpus.read(options.data, configuration.corpus_format, part)[: options.limit or None]
            self.arrays[part] = arrays_of(self.instances[part], text)
        self.short = np.flatnonzero(self.arrays["train"].subtokens < configuration.longest)

    def job(self, name: str, seed: int) -> Dict[str, object]:
        """Trains one model and judges its systems on both parts. `predictions`: label ids by system and part."""
        import torch

        trained, device = MODELS[name], self.options.device
        torch.manual_seed(seed)
        random = np.random.default_rng(seed)
        labels, data, left_out, tagger = self.prepare(name)
        optimizer, schedule = self.optimizer(tagger, len(data.arrays.words))
        best: Dict[str, object] = {"f1": -1.0, "state": None, "waited": 0}
        step, total, begin = 0, torch.zeros((), device=device), time.perf_counter()
        losses, gaps = [], Gaps()
        for epoch in range(self.options.epochs):
            tagger.train()
            layer = base_layer(tagger.crf) if epoch < self.options.base_epochs else tagger.crf
            batches = shuffled_batches(data.arrays.subtokens, self.options.batch, random)
            total.zero_()
            for which in batches:
                total += train_step(tagger, data.batch(which), optimizer, schedule, layer)
                gaps.add(layer.gaps)
                step += 1
                if self.configuration.evaluate_every and step % self.configuration.evaluate_every == 0:
                    self._look(tagger, labels, trained, best)
            losses.append(float(total) / len(batches))
            if self.configuration.patience and best["waited"] >= self.configuration.patience:
                break
        if best["state"] is not None:
            tagger.load_state_dict(best["state"])
        synchronize(device)
        result = {
            "model": name,
            "seed": seed,
            "labels": labels,
            "left_out": left_out,
            "steps": step,
            "losses": losses,
            "seconds": time.perf_counter() - begin,
            **gaps.report(),
            "systems": {},
            "predictions": {},
        }
        for system, language in trained.systems:
            result["systems"][system] = {}
            for part in ("dev", "test"):
                start = time.perf_counter()
                predicted = self.decode(tagger, part, language)
                seconds = time.perf_counter() - start
                names = [[labels[a] for a in row] for row in predicted]
                result["systems"][system][part] = {
                    **judge(self.instances[part], names, self.languages[trained.judged_by]),
                    "decode_seconds": seconds,
                }
                result["predictions"][f"{system}/{part}"] = np.concatenate(
                    [np.array(row, np.uint8) for row in predicted]
                )
        return result

    def labels_of(self, trained: Trained) -> List[str]:
        """The language of all roles has two labels that the training part lacks; a model that meets it has them too."""
        if trained.judged_by == "full":
            return list(self.languages["full"].labels)
        return self.languages.labels(trained.roles, self.instances["train"])

    def prepare(self, name: str):
        """Labels, training data on the device, how many instances were left out for the language, and a new tagger."""
        trained = MODELS[name]
        labels = self.labels_of(trained)
        constraint = self.languages[trained.language] if trained.language else None
        gold = gold_labels(self.instances["train"], labels)
        illegal = set(outside(constraint, gold)) if constraint else set()
        keep = np.array([i for i in self.short if i not in illegal])
        ids = {label: i for i, label in enumerate(labels)}
        padded = np.zeros((len(keep), self.arrays["train"].first.shape[1]), np.int64)
        for row, i in zip(padded, keep):
            row[: len(gold[i])] = [ids[label] for label in gold[i]]
        data = OnDevice(self.arrays["train"].subset(keep), self.options.device, padded)
        options = self.options
        tagger = make_tagger(options.encoder, labels, constraint, options.embeddings, options.max_gap).to(options.device)
        return labels, data, len(illegal), tagger

    def optimizer(self, tagger, instances: int):
        import torch

        c = self.configuration
        groups = [
            {"params": list(tagger.encoder.parameters()), "lr": self.options.encoder_rate},
            {"params": [*tagger.emit.parameters(), *tagger.crf.parameters()], "lr": self.options.head_rate},
        ]
        fused = {"fused": True} if self.options.device.startswith("cuda") else {}
        if c.optimizer == "adam":
            return torch.optim.Adam(groups, **fused), None
        optimizer = torch.optim.AdamW(groups, weight_decay=0.01, **fused)
        steps = self.options.epochs * -(-instances // self.options.batch)
        warm = max(1, steps // 10)
        return optimizer, torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min((step + 1) / warm, max(0.0, (steps - step) / max(1, steps - warm)))
        )

    def _look(self, tagger, labels, trained, best) -> None:
        """Early stopping: keeps the weights that were best on a part of the development set."""
        predicted = self.decode(tagger, "dev", trained.language, self.configuration.batch * 250)
        names = [[labels[a] for a in row] for row in predicted]
        f1 = judge(self.instances["dev"][: len(names)], names, self.languages[trained.judged_by])["f1"]
        tagger.train()
        best["waited"] += 1
        if f1 > best["f1"]:
            best.update(f1=f1, waited=0, state={k: v.detach().clone() for k, v in tagger.state_dict().items()})

    def decode(self, tagger, part: str, language: Optional[str], limit: Optional[int] = None) -> List[List[int]]:
        """Label ids of every instance of a part."""
        arrays = self.arrays[part].subset(np.arange(min(limit or len(self.instances[part]), len(self.instances[part]))))
        return decode(tagger, self.layer(tagger, language), OnDevice(arrays, self.options.device))

    def layer(self, tagger, language: Optional[str]):
        """The tagger's CRF layer under a language, or under none."""
        return tagger.crf.with_constraint(self.languages[language] if language else None)


def decoding_batches(arrays: Arrays, batch: int = 256) -> List[np.ndarray]:
    order = np.argsort(arrays.subtokens, kind="stable")
    return [order[begin : begin + batch] for begin in range(0, len(order), batch)]


def decode(tagger, crf, data: OnDevice) -> List[List[int]]:
    """Label ids of every instance."""
    import torch

    result: List[List[int]] = [[] for _ in data.arrays.words]
    tagger.eval()
    with torch.no_grad():
        for which in decoding_batches(data.arrays):
            inputs, mask, _ = data.batch(which)
            for i, best in zip(which, crf.decode(tagger.emissions(*inputs), mask)):
                result[i] = best
    return result


def base_layer(crf):
    """The layer without the rules that its constraint keeps; itself where it keeps none. An untrained model's scores are flat, and sums
    under rules want scores that are not."""
    return crf.with_constraint(crf.constraint.base) if crf.constraint.rules else crf


class Gaps:
    """Of the losses under rules that are kept: how many there were, how many of them were an upper bound, the largest gap."""

    def __init__(self) -> None:
        self.losses, self.uncertified, self.largest = 0, 0, 0.0

    def add(self, gaps: Sequence[float]) -> None:
        certified = [gap for gap in gaps if gap != float("inf")]
        self.losses += len(gaps)
        self.uncertified += len(gaps) - len(certified)
        self.largest = max([self.largest, *certified])

    def report(self) -> Dict[str, object]:
        if not self.losses:
            return {}
        return {"certified": {"losses": self.losses, "uncertified": self.uncertified, "largest_gap": self.largest}}


def train_step(tagger, batch, optimizer, schedule, layer=None):
    """The loss, not yet fetched from the device. `layer`: the tagger's parameters under another constraint."""
    import torch

    inputs, mask, gold = batch
    loss = -(layer or tagger.crf)(tagger.emissions(*inputs), gold, mask, reduction="mean")
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if schedule is not None:
        torch.nn.utils.clip_grad_norm_(tagger.parameters(), 5.0)
    optimizer.step()
    if schedule is not None:
        schedule.step()
    return loss.detach()


def synchronize(device: str) -> None:
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize()


# --- processes --------------------------------------------------------------------------------------------------------


def work(options: argparse.Namespace, threads: int, jobs, done) -> None:
    """Takes (model, seed) until there is None; answers with (model, seed, result or message)."""
    import torch

    torch.set_num_threads(threads)
    experiment = Experiment(CONFIGURATIONS[options.configuration], options)
    for name, seed in iter(jobs.get, None):
        try:
            result = experiment.job(name, seed)
        except Exception:  # one failed job does not take the others along
            result = traceback.format_exc()
        done.put((name, seed, result))


class Workers:
    """Processes that share the device. They are started afresh, not forked: CUDA does not outlive a fork."""

    def __init__(self, options: argparse.Namespace, count: int, threads: int, deadline: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.deadline = deadline
        self.jobs, self.done = context.Queue(), context.Queue()
        self.processes = [
            context.Process(target=work, args=(options, threads, self.jobs, self.done), daemon=True)
            for _ in range(count)
        ]
        for process in self.processes:
            process.start()

    def run(self, todo: Sequence[tuple]) -> Iterator[tuple]:
        """Answers in the order in which they are finished, until the deadline."""
        for job in todo:
            self.jobs.put(job)
        for _ in todo:
            while True:
                try:
                    yield self.done.get(timeout=2)
                    break
                except queue.Empty:
                    if time.time() > self.deadline:
                        return
                    if not all(process.is_alive() for process in self.processes):
                        print("neural: error: a process has ended before the jobs were done", file=sys.stderr)
                        return

    def end(self) -> None:
        for process in self.processes:
            process.terminate()


# --- options, and what is reported about them -------------------------------------------------------------------------


def common_options(parser: argparse.ArgumentParser) -> None:
    """Options of whatever needs an `Experiment`."""
    parser.add_argument("--configuration", choices=CONFIGURATIONS, default="ewt")
    parser.add_argument("--data", type=Path, help="folder of the corpus")
    parser.add_argument(
        "--encoder",
        help=f"a folder, a name at Hugging Face such as roberta-base, or {GLOVE}: "
        "a BiLSTM over word vectors, which needs no weights",
    )
    parser.add_argument(
        "--embeddings", type=Path, default=DATA / "embeddings", help=f"folder of the word vectors for {GLOVE}"
    )
    parser.add_argument(
        "--models", nargs="+", choices=MODELS, default=["crf-full", "crf-reduced", "regccrf", "regccrf-rich"]
    )
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--encoder-rate", type=float)
    parser.add_argument("--head-rate", type=float)
    parser.add_argument("--limit", type=int, default=0, help="so many instances of every part; 0 for all")
    parser.add_argument("--max-gap", type=float, default=1e-3, help="of losses under rules that are kept beside a base")
    parser.add_argument("--device", help="cuda or cpu; by default what there is")


def complete(options: argparse.Namespace) -> argparse.Namespace:
    """What was not said, from the configuration and the machine."""
    configuration = CONFIGURATIONS[options.configuration]
    options.data = options.data or configuration.folder
    for name in ("encoder", "seeds", "epochs", "batch", "encoder_rate", "head_rate"):
        if getattr(options, name, None) is None:
            setattr(options, name, getattr(configuration, name))
    if options.device is None:
        import torch

        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    return options


def read_experiment(options: argparse.Namespace) -> Experiment:
    try:
        return Experiment(CONFIGURATIONS[options.configuration], options)
    except (corpus.Absent, OSError, ValueError) as error:
        raise corpus.Absent(
            f"{error}\n(an encoder is a folder or a name at Hugging Face; --encoder {GLOVE} needs none)"
        ) from None


def without_folders(word: str) -> str:
    """A file or folder by its name alone, but for those of the repository: where else they lie is nobody's business."""
    path = Path(word)
    if "/" not in word or not (path.is_absolute() or path.exists()):
        return word
    whole = path.resolve()
    inside = whole.relative_to(ROOT).parts if whole.is_relative_to(ROOT) else ()
    return "/".join(inside) if inside and not inside[0].startswith(".") else path.name


def settings_of(options: argparse.Namespace) -> Dict[str, object]:
    """What decides about the results; equal in all runs of a report."""
    names = ["configuration", "encoder", "epochs", "batch", "encoder_rate", "head_rate", "limit"]
    if any(MODELS[name].language == "full" for name in options.models):
        names += [name for name in ("max_gap", "base_epochs", "pretrain") if hasattr(options, name)]
    return {**{name: getattr(options, name) for name in names}, "encoder": without_folders(options.encoder)}


def machine_of(device: str) -> Dict[str, object]:
    import torch

    name = torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"
    return {
        "device": name,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def command_line() -> str:
    return " ".join(without_folders(word) for word in sys.argv)


def write_whole(path: Path, write) -> None:
    """The file is the old one or the new one, never a part of one."""
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as file:
        write(file)
    part.replace(path)


# --- the program ------------------------------------------------------------------------------------------------------


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Neural semantic role labelling with and without the constraint.")
    common_options(parser)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--base-epochs", type=int, default=1, help="the first so many without the rules that are kept")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--lacking", type=Path, help="a report: leave out the jobs that it has")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the device")
    parser.add_argument("--threads", type=int, default=0, help="of each process; 0 shares the cores out")
    parser.add_argument("--minutes", type=float, default=0, help="end after so long, with what is finished; 0: never")
    parser.add_argument("--output", type=Path, required=True, help="folder for neural.json and predictions.npz")
    return complete(parser.parse_args())


def jobs_of(options: argparse.Namespace) -> List[Tuple[str, int]]:
    """(model, seed) of every job that is asked for."""
    finished = set()
    if options.lacking:
        report = json.loads(options.lacking.read_text())
        finished = {(job["model"], job["seed"]) for job in report["jobs"]}
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    return [(name, seed) for seed in seeds for name in options.models if (name, seed) not in finished]


def main() -> int:
    options = parse_options()
    begin = time.time()
    try:
        jobs = jobs_of(options)
        experiment = read_experiment(options)
    except (corpus.Absent, OSError, ValueError, KeyError) as error:
        print(f"neural: error: {error}", file=sys.stderr)
        return 2
    print(f"read and tokenised in {time.time() - begin:.1f} s; {len(jobs)} jobs", flush=True)
    count = max(1, min(options.workers, len(jobs)))
    threads = options.threads or max(1, (os.cpu_count() or 1) // count)
    run = {"command": command_line(), "machine": machine_of(options.device), "workers": count, "threads": threads}
    report = {
        "experiment": "srl, neural",
        "settings": settings_of(options),
        "instances": {part: len(instances) for part, instances in experiment.instances.items()},
        "too_long": len(experiment.instances["train"]) - len(experiment.short),
        "runs": [run],
        "labels": {},
        "jobs": [],
        "failed": [],
    }
    predictions: Dict[str, np.ndarray] = {}
    options.output.mkdir(parents=True, exist_ok=True)
    workers = Workers(options, count, threads, begin + 60 * options.minutes if options.minutes else float("inf"))
    for answer in workers.run(jobs):
        record(report, predictions, *answer)
        run["wall_seconds"] = time.time() - begin
        write_whole(options.output / "neural.json", lambda f: f.write(json.dumps(report, indent=1).encode()))
        write_whole(options.output / "predictions.npz", lambda f: np.savez_compressed(f, **predictions))
    workers.end()
    print(f"{len(report['jobs'])} of {len(jobs)} jobs, {len(report['failed'])} failed, {time.time() - begin:.0f} s")
    return 0 if len(report["jobs"]) == len(jobs) else 1


def record(report, predictions, name, seed, result) -> None:
    if isinstance(result, str):
        report["failed"].append({"model": name, "seed": seed, "error": result})
        print(f"{name} {seed} failed:\n{result}", flush=True)
        return
    report["labels"][name] = result.pop("labels")
    for key, array in result.pop("predictions").items():
        predictions[f"{name}/{seed}/{key}"] = array
    report["jobs"].append(result)
    for system, parts in result["systems"].items():
        test = parts["test"]
        print(
            f"seed {seed} {system}: test F1 {test['f1']:.2f} (P {test['precision']:.2f} R {test['recall']:.2f}), "
            f"dev F1 {parts['dev']['f1']:.2f}, outside {test['violations']} of {test['outputs']}; "
            f"loss {result['losses'][-1]:.3f}, {result['seconds']:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
