"""Privacy-filter's decoding as its page describes it, in plain Python, and once more with an array operation for each position. Nothing of regccrf
is used here: tests compare with it, and bench/transformers is measured against it.

O, B and S may begin a text, O, E and S end it. O, E and S are followed by O, B or S; B and I by I or E of the same type. Each pair that is
allowed adds its bias; scores are log probabilities.
"""

import math

import numpy as np


def pair_score(before, now, biases):
    """Of two (letter, type); None where the pair is not allowed."""
    (a, x), (b, y) = before, now
    if a == "O":
        names = {"O": "background_stay", "B": "background_to_start", "S": "background_to_start"}
    elif a in "ES":
        names = {"O": "end_to_background", "B": "end_to_start", "S": "end_to_start"}
    else:
        names = {"I": "inside_to_continue", "E": "inside_to_end"} if x == y else {}
    return biases.get(names[b], 0.0) if b in names else None


def tags_of(labels):
    return [(labels[i][0], labels[i][2:]) for i in range(len(labels))]


def plain_viterbi(log_probs, labels, biases):
    """Label ids. `log_probs`: T lists of K; `labels`: {id: name}."""
    tags = tags_of(labels)
    pairs = [[(i, pair_score(before, now, biases)) for i, before in enumerate(tags)] for now in tags]
    into = [[(i, score) for i, score in sources if score is not None] for sources in pairs]
    best = [log_probs[0][k] if tags[k][0] in "OBS" else -math.inf for k in range(len(tags))]
    back = []
    for row in log_probs[1:]:
        links = [max(((best[i] + score, i) for i, score in sources), default=(-math.inf, -1)) for sources in into]
        back.append([i for _, i in links])
        best = [value + row[k] for k, (value, _) in enumerate(links)]
    path = [max((k for k in range(len(tags)) if tags[k][0] in "OES"), key=best.__getitem__)]
    for links in reversed(back):
        path.append(links[path[-1]])
    return path[::-1]


def numpy_viterbi(log_probs, labels, biases):
    """The same on an array [T, K]: a step is one addition and one maximum over [K, K]."""
    tags = tags_of(labels)
    allowed = [[pair_score(before, now, biases) for now in tags] for before in tags]
    pairs = np.array([[-np.inf if score is None else score for score in row] for row in allowed])
    best = np.where([tag in "OBS" for tag, _ in tags], log_probs[0], -np.inf)
    back = np.empty((len(log_probs) - 1, len(tags)), np.int64)
    for t, row in enumerate(log_probs[1:]):
        scores = best[:, None] + pairs
        back[t] = scores.argmax(0)
        best = scores.max(0) + row
    path = [int(np.where([tag in "OES" for tag, _ in tags], best, -np.inf).argmax())]
    for links in back[::-1]:
        path.append(int(links[path[-1]]))
    return path[::-1]
