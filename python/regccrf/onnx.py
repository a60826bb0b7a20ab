"""Decoding as a plain ONNX graph: emissions go in, legal labels come out. Any ONNX runtime can run it, without this package.

`decoder` makes the graph of a layer, or of a constraint with scores. `join` connects it to an exported encoder. `export` exports a PyTorch
module that calls `decode_tensor`.

>>> import numpy, onnxruntime, regccrf.onnx
>>> model = regccrf.onnx.decoder(regccrf.compile("(O | B I*)*"), numpy.zeros((3, 3)))
>>> session = onnxruntime.InferenceSession(model.SerializeToString())
>>> session.run(["labels"], {"emissions": [[[0, 0, 5], [0, 0, 5]]], "mask": [[True, True]]})[0].tolist()
[[1, 2]]

The graph is Viterbi's algorithm on nodes (source state, label) and arrivals (target state, label). It has two Scans, one forward and one
backward, over tables made from the automaton. A step forward is

    arrival[m] = max over the nodes n that have an arc to m of delta[n]
    delta'[n]  = h[label(n)] + max over the arrivals m of n's state of (arrival[m] + g[label(m), label(n)])

States with about the same numbers of in-labels and out-labels form a group. For a group the second line is one addition of [states, 1, in] and
[states, out, in], and a maximum over the last axis. So a step costs `products` and arcs, up to padding, and there is no matrix of nodes ×
nodes. An additional node means "nothing was read yet". Its label is K, whose transitions are the start scores. A masked position does not
change delta. The backward Scan finds the best predecessor again from the deltas, so there are no backpointers.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ModuleNotFoundError as error:
    if error.name != "onnx":
        raise
    raise ModuleNotFoundError("regccrf.onnx needs onnx: pip install regccrf[onnx]", name="onnx") from None

from . import __version__
from ._core import Constraint, Error

__all__ = ["decoder", "export", "join"]

Array = Any
ModelLike = Union["onnx.ModelProto", str, "os.PathLike[str]"]
_OLDEST, _NEWEST = 13, 26  # opsets; ReduceMax takes its axes as an input from 18 on
_MOST_BYTES = 1 << 26      # of the tables
_TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}


# --- the automaton as tables --------------------------------------------------------------------------------------------------

_Node = Tuple[int, int]  # (source state, label)
_BEGIN: _Node = (-1, -1)
_GROUP_COST = 10_000     # what one group more costs a step, in additions


class _State(NamedTuple):
    """A state that can be left, or the one that holds the beginning."""
    number: int
    into: List[Tuple[int, List[_Node]]]  # arrivals: label, and the nodes with an arc to it
    out: List[int]                       # labels


class _Tables(NamedTuple):
    """N nodes, M arrivals, Q states, the beginning among them, padded; in the order of the groups."""
    groups: List[np.ndarray]  # [states, out, in] each: transitions; −inf for nodes that only pad
    into: np.ndarray          # int32 [M, D]: nodes with an arc to an arrival; rows are padded with copies of an entry, as below
    label: np.ndarray         # int32 [N], of a node; K of the beginning
    state: np.ndarray         # int32 [N], of a node
    before: np.ndarray        # int32 [Q, C]: all nodes with an arc to a state
    last: np.ndarray          # [N]: the end score of a node that may come last, −inf for others
    begin: int                # the beginning


def _tables(constraint: Constraint, transitions: np.ndarray, start: np.ndarray, end: np.ndarray) -> _Tables:
    K = len(transitions)
    g = np.vstack([transitions, start])
    groups = _grouped(_states(constraint, K))
    states = [state for group in groups for state in group]
    widths = [(max(len(state.into) for state in group), max(len(state.out) for state in group)) for group in groups]
    width = {state.number: both for group, both in zip(groups, widths) for state in group}
    nodes: List[Optional[_Node]] = []  # None: pads
    for state in states:
        own: List[Optional[_Node]] = [_BEGIN if state.number < 0 else (state.number, b) for b in state.out]
        nodes += own + [None] * (width[state.number][1] - len(own))
    at = {node: n for n, node in enumerate(nodes) if node is not None}
    into = [[at[node] for node in sources] for state in states
            for _, sources in state.into + state.into[:1] * (width[state.number][0] - len(state.into))]
    before = [[at[node] for _, sources in state.into for node in sources] for state in states]
    _check_size([(len(group), *both) for group, both in zip(groups, widths)], into, before)
    label = np.array([K if node == _BEGIN else 0 if node is None else node[1] for node in nodes], np.int32)
    state_of = np.repeat(np.arange(len(states)), [width[state.number][1] for state in states]).astype(np.int32)
    return _Tables([np.stack([_mix(state, *width[state.number], g) for state in group]) for group in groups], _padded(into), label, state_of,
                  _padded(before), _last(constraint, nodes, end), at[_BEGIN])


def _states(constraint: Constraint, K: int) -> List[_State]:
    coming: Dict[int, Dict[int, List[_Node]]] = {constraint.start: {K: [_BEGIN]}}
    out: Dict[int, List[int]] = {}
    for q, a, r in constraint.arc_list():
        coming.setdefault(r, {}).setdefault(a, []).append((q, a))
        out.setdefault(q, []).append(a)
    states = [_State(q, sorted(coming[q].items()), sorted(set(labels))) for q, labels in out.items()]
    return [*states, _State(-1, [(K, [_BEGIN])], [0])]


def _mix(state: _State, width: int, height: int, g: np.ndarray) -> np.ndarray:
    """Transitions of a state: [out, in]. A copy of the first arrival pads, and nodes that cannot be."""
    arrivals = [a for a, _ in state.into] + [state.into[0][0]] * (width - len(state.into))
    mix = np.full((height, width), -np.inf)
    if state.number >= 0:
        mix[:len(state.out)] = g[np.ix_(arrivals, state.out)].T
    return mix


def _grouped(states: Sequence[_State]) -> List[List[_State]]:
    """By numbers of in-labels and out-labels. Groups are joined where that costs less than a group more."""
    by_size: Dict[Tuple[int, int], List[_State]] = {}
    for state in states:
        by_size.setdefault((len(state.into), len(state.out)), []).append(state)
    sizes = [(i, o, group) for (i, o), group in sorted(by_size.items())]
    while len(sizes) > 1:
        joined = [(_joined(sizes[k], sizes[k + 1]), k) for k in range(len(sizes) - 1)]
        costs = [_cost(both) - _cost(sizes[k]) - _cost(sizes[k + 1]) for both, k in joined]
        best = int(np.argmin(costs))
        if costs[best] > _GROUP_COST:
            break
        sizes[best:best + 2] = [joined[best][0]]
    return [group for _, _, group in sizes]


_Sized = Tuple[int, int, List[_State]]


def _joined(x: _Sized, y: _Sized) -> _Sized:
    return max(x[0], y[0]), max(x[1], y[1]), x[2] + y[2]


def _cost(x: _Sized) -> int:
    return x[0] * x[1] * len(x[2])


def _last(constraint: Constraint, nodes: Sequence[Optional[_Node]], end: np.ndarray) -> np.ndarray:
    accepting = set(constraint.accepting)
    final = {(q, a): float(end[a]) for q, a, r in constraint.arc_list() if r in accepting}
    final[_BEGIN] = 0.0 if constraint.start in accepting else -np.inf
    return np.array([-np.inf if node is None else final.get(node, -np.inf) for node in nodes])


def _padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    width = max(map(len, rows))
    return np.array([[*row, *[row[0]] * (width - len(row))] for row in rows], np.int32)


def _check_size(groups: Sequence[Tuple[int, int, int]], *lists: Sequence[Sequence[int]]) -> None:
    """Before anything is made of them."""
    bytes = sum(8 * states * into * out for states, into, out in groups) + sum(4 * len(rows) * max(map(len, rows)) for rows in lists)
    if bytes > _MOST_BYTES:
        raise Error(f"[onnx] the tables of this constraint would take {bytes / 2**20:,.0f} MiB, and {_MOST_BYTES / 2**20:.0f} MiB are the most. "
                    "State fewer rules, or decode outside of the graph")


# --- the graph ---------------------------------------------------------------------------------------------------------------


class _Graph:
    """Nodes and constants as they are added. All names made here have one prefix, so that they meet no other graph's."""

    def __init__(self, opset: int, prefix: str = "regccrf/") -> None:
        self.opset, self.prefix, self.root = opset, prefix, prefix
        self.nodes: List[Any] = []
        self.constants: Dict[str, Any] = {}

    def body(self, prefix: str) -> _Graph:
        """A graph inside of this one, whose constants are this one's."""
        inner = _Graph(self.opset, self.prefix + prefix)
        inner.constants, inner.root = self.constants, self.root
        return inner

    def add(self, op: str, *inputs: str, outputs: Sequence[str] = (), **attributes: Any) -> str:
        """A node; the name of its first output."""
        names = list(outputs) or [f"{self.prefix}{op}_{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"{self.prefix}{op}_{len(self.nodes)}", **attributes))
        return names[0]

    def constant(self, name: str, value: Array) -> str:
        name = self.root + name
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def ints(self, *values: int) -> str:
        return self.constant("ints " + " ".join(map(str, values)), np.array(values, np.int64))

    def reduce_max(self, x: str, axis: int) -> str:
        if self.opset >= 18:
            return self.add("ReduceMax", x, self.ints(axis), keepdims=0)
        return self.add("ReduceMax", x, axes=[axis], keepdims=0)


def _value(name: str, type: int, *shape: Union[str, int]) -> Any:
    return helper.make_tensor_value_info(name, type, list(shape))


class _Names(NamedTuple):
    """What the graph takes and gives."""
    emissions: str
    mask: Optional[str]
    labels: str
    scores: str


class _Decoder:
    """Adds the decoder to a graph. real: the type that scores are added in."""

    def __init__(self, graph: _Graph, crf: _Scores, real: str, batch_first: bool, fill: int) -> None:
        self.graph, self.type, self.batch_first, self.fill = graph, _TYPES[real], batch_first, fill
        self.tables = table = _tables(*crf)
        self.K, self.N = len(crf.transitions), len(table.label)
        first = np.full((1, self.N), -np.inf, real)
        first[0, table.begin] = 0
        self.first = graph.constant("first", first)
        self.last = graph.constant("last", table.last.astype(real))
        self.label = graph.constant("label", table.label)
        self.g = graph.constant("transitions", np.vstack([crf.transitions, crf.start]).astype(real).ravel())  # [(K + 1) · K]

    def add(self, names: _Names) -> None:
        g = self.graph
        h = g.add("Cast", names.emissions, to=self.type)
        h = g.add("Transpose", h, perm=[1, 0, 2]) if self.batch_first else h                                    # [T, B, K]
        shape = g.add("Shape", h)
        here = self._here(names.mask, shape)                                                                    # [T, B]
        # One position more, which is absent: onnxruntime's Scan takes no empty sequences.
        h, here = g.add("Pad", h, g.ints(0, 0, 0, 1, 0, 0)), g.add("Pad", here, g.ints(0, 0, 1, 0))
        delta = g.add("Expand", self.first, g.add("Concat", g.add("Gather", shape, g.ints(1)), g.ints(self.N), axis=0))
        last, kept, path = (g.prefix + name for name in ("delta", "deltas", "path"))                            # [B, N], [T, B, N], [T, B, 1]
        g.add("Scan", delta, h, g.add("Unsqueeze", here, g.ints(2)), outputs=[last, kept], body=self._forward(), num_scan_inputs=2)
        final = g.add("Add", last, self.last)
        scores = g.reduce_max(final, 1)
        g.add("Identity", scores, outputs=[names.scores])
        node = g.add("Cast", g.add("ArgMax", final, axis=1, keepdims=1), to=TensorProto.INT32)
        g.add("Scan", node, kept, g.add("Unsqueeze", here, g.ints(2)), outputs=[g.prefix + "first_node", path], body=self._backward(),
              num_scan_inputs=2, scan_input_directions=[1, 1], scan_output_directions=[1])
        legal = g.add("Greater", scores, g.constant("minus_infinity", np.array(-np.inf, self.real)))
        labels = g.add("Cast", g.add("Squeeze", path, g.ints(2)), to=TensorProto.INT64)
        labels = g.add("Where", g.add("And", here, legal), labels, g.constant("fill", np.array(self.fill, np.int64)))
        labels = g.add("Slice", labels, g.ints(0), g.ints(-1), g.ints(0))
        g.add("Transpose" if self.batch_first else "Identity", labels, outputs=[names.labels])

    @property
    def real(self) -> Any:
        return helper.tensor_dtype_to_np_dtype(self.type)

    def _here(self, mask: Optional[str], shape: str) -> str:
        """Which positions are present: bool [T, B]."""
        g = self.graph
        if mask is None:
            true = numpy_helper.from_array(np.array([True]))
            return g.add("ConstantOfShape", g.add("Gather", shape, g.ints(0, 1)), value=true)
        here = g.add("Cast", mask, to=TensorProto.BOOL)
        return g.add("Transpose", here) if self.batch_first else here

    def _forward(self) -> Any:
        """delta [B, N], h [B, K], here [B, 1] → the next delta, and the old one, which is kept."""
        g = self.graph.body("forward/")
        delta, h, here = g.prefix + "delta", g.prefix + "h", g.prefix + "here"
        emitted = g.add("Gather", h, g.constant("emitted", np.minimum(self.tables.label, self.K - 1)), axis=1)  # the beginning's is any
        following = g.add("Where", here, g.add("Add", self._mixed(g, self._moved(g, delta)), emitted), delta)
        kept = g.add("Identity", delta)
        return helper.make_graph(g.nodes, "forward", [_value(delta, self.type, "B", self.N), _value(h, self.type, "B", self.K),
                                                      _value(here, TensorProto.BOOL, "B", 1)],
                                 [_value(following, self.type, "B", self.N), _value(kept, self.type, "B", self.N)])

    def _moved(self, g: _Graph, delta: str) -> str:
        """Nodes → arrivals, [B, M]. Arrivals with few sources and those with many apart, where padding would be most of the work."""
        into = self.tables.into
        if into.shape[1] == 1:
            return g.add("Gather", delta, g.constant("into", into[:, 0]), axis=1)
        sources = np.array([len(set(row)) for row in into])
        parts = [np.flatnonzero((sources > lowest // 2) & (sources <= lowest)) for lowest in 1 << np.arange(into.shape[1].bit_length() + 1)]
        parts = [rows for rows in parts if len(rows)]
        if sum(len(rows) * sources[rows].max() for rows in parts) * 2 > into.size:
            parts = [np.arange(len(into))]
        moved = [self._most(g, delta, f"into_{i}", into[rows, :sources[rows].max()]) for i, rows in enumerate(parts)]
        if len(moved) == 1:
            return moved[0]
        return g.add("Gather", g.add("Concat", *moved, axis=1), g.constant("order", np.argsort(np.concatenate(parts)).astype(np.int32)), axis=1)

    @staticmethod
    def _most(g: _Graph, delta: str, name: str, rows: np.ndarray) -> str:
        if rows.shape[1] == 1:
            return g.add("Gather", delta, g.constant(name, rows[:, 0]), axis=1)
        return g.reduce_max(g.add("Gather", delta, g.constant(name, rows), axis=1), 2)

    def _mixed(self, g: _Graph, arrival: str) -> str:
        """Arrivals → nodes, [B, N], group by group."""
        groups = self.tables.groups
        sizes = [mix.shape[0] * mix.shape[2] for mix in groups]
        parts = [f"{g.prefix}arrivals_{i}" for i in range(len(groups))] if len(groups) > 1 else [arrival]
        if len(groups) > 1:
            g.add("Split", arrival, g.ints(*sizes), outputs=parts, axis=1)
        mixed = []
        for i, (part, mix) in enumerate(zip(parts, groups)):
            states, out, into = mix.shape
            added = g.add("Add", g.add("Reshape", part, g.ints(0, states, 1, into)), g.constant(f"mix_{i}", mix.astype(self.real)))
            mixed.append(g.add("Reshape", g.reduce_max(added, 3) if into > 1 else added, g.ints(0, states * out)))
        return g.add("Concat", *mixed, axis=1) if len(mixed) > 1 else mixed[0]

    def _backward(self) -> Any:
        """node [B, 1], the delta before it [B, N], here [B, 1] → the node before, and this one's label."""
        g = self.graph.body("backward/")
        node, delta, here = g.prefix + "node", g.prefix + "delta", g.prefix + "here"
        label = g.add("Gather", self.label, node)                                                               # [B, 1]
        state = g.add("Squeeze", g.add("Gather", g.constant("state", self.tables.state), node), g.ints(1))
        before = g.add("Gather", g.constant("before", self.tables.before), state)                               # [B, C]
        labels = g.add("Mul", g.add("Gather", self.label, before), g.constant("K", np.array(self.K, np.int32)))
        transitions = g.add("Gather", self.g, g.add("Add", labels, g.add("Min", label, g.constant("K - 1", np.array(self.K - 1, np.int32)))))
        scores = g.add("Add", g.add("GatherElements", delta, before, axis=1), transitions)
        best = g.add("GatherElements", before, g.add("ArgMax", scores, axis=1, keepdims=1), axis=1)
        best = g.add("Where", here, best, node)
        return helper.make_graph(g.nodes, "backward", [_value(node, TensorProto.INT32, "B", 1), _value(delta, self.type, "B", self.N),
                                                       _value(here, TensorProto.BOOL, "B", 1)],
                                 [_value(best, TensorProto.INT32, "B", 1), _value(label, TensorProto.INT32, "B", 1)])


# --- what users call -----------------------------------------------------------------------------------------------------------


class _Scores(NamedTuple):
    """A constraint and its scores in float64."""
    constraint: Constraint
    transitions: np.ndarray  # [K, K]
    start: np.ndarray        # [K]
    end: np.ndarray          # [K]


def decoder(crf: Any, transitions: Array = None, start: Array = None, end: Array = None, *, mask: bool = True, fill: int = -1,
            batch_first: Optional[bool] = None, precision: str = "float64", opset: int = 17) -> onnx.ModelProto:
    """Emissions → legal labels, as an ONNX model.

    Inputs: `emissions` float32 [B, T, K]; and, unless `mask=False`, `mask` bool [B, T], where False means absent. Any position may be masked.
    Outputs: `labels` int64 [B, T], what `decode` gives, with `fill` at masked positions; `scores` [B], the scores of these sequences. If no
    sequence is legal, the score is −inf and all labels are `fill`. The names of the labels are in the model's metadata, as JSON under `labels`.

    Args:
        crf: a layer of `regccrf.torch`, with its present scores; or a `Constraint`, whose scores are given by the next arguments.
        transitions, start, end: [K, K] from, to; [K] or None. Only with a `Constraint`.
        batch_first: False: [T, B, K] and [T, B]. The default is that of the layer, and True for a `Constraint`.
        precision: in which scores are added: "float64"; or "float32", which is faster, but may choose another sequence if two have the same
            score to seven digits.
        opset: version of the ONNX operators, 13 to 26.

    >>> import regccrf.onnx
    >>> model = regccrf.onnx.decoder(CRF(["A", "B"]).with_constraint("A B*"), mask=False)
    >>> [x.name for x in model.graph.input], [x.name for x in model.graph.output]
    (['emissions'], ['labels', 'scores'])
    """
    scores, first = _scores_of(crf, transitions, start, end), _batch_first(crf, batch_first)
    names = _Names("emissions", "mask" if mask else None, "labels", "scores")
    graph = _decoder_graph(scores, names, first, fill, precision, opset)
    B, T = ("B", "T") if first else ("T", "B")
    inputs = [_value("emissions", TensorProto.FLOAT, B, T, len(scores.transitions))] + ([_value("mask", TensorProto.BOOL, B, T)] if mask else [])
    built = helper.make_graph(graph.nodes, "regccrf", inputs, _outputs(names, precision, first), initializer=list(graph.constants.values()))
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(built, opset_imports=opsets, producer_name="regccrf", producer_version=__version__,
                              ir_version=helper.find_min_ir_version_for(opsets))
    return _finished(model, scores)


def join(encoder: ModelLike, crf: Any, transitions: Array = None, start: Array = None, end: Array = None, *, emissions: Optional[str] = None,
         mask: Union[bool, str] = True, labels: str = "labels", scores: str = "scores", fill: int = -1, batch_first: Optional[bool] = None,
         precision: str = "float64") -> onnx.ModelProto:
    """The graph of an encoder followed by the decoder. It has the inputs and outputs of the encoder, and the outputs `labels` and `scores`.

    Args:
        encoder: an ONNX model, or a path to one, that gives emissions.
        crf, transitions, start, end, fill, batch_first, precision: as in `decoder`.
        emissions: the name of the output with the emissions; not needed if there is only one output.
        mask: the name of an input or output of the encoder that is the mask (of any type; 0 = absent); True for an additional input `mask`;
            False for none.
        labels, scores: names of the new outputs.

    >>> import numpy, onnx.parser, regccrf.onnx
    >>> encoder = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["" : 17]>
    ...     encode (float[B, T, 2] x) => (float[B, T, 2] logits) { logits = Neg(x) }''')
    >>> [x.name for x in regccrf.onnx.join(encoder, regccrf.compile("A B*"), numpy.zeros((2, 2))).graph.output]
    ['logits', 'labels', 'scores']
    """
    given = encoder if isinstance(encoder, onnx.ModelProto) else onnx.load(os.fspath(encoder))
    model, own = onnx.ModelProto(), _scores_of(crf, transitions, start, end)
    model.CopyFrom(given)
    outputs = {x.name: x for x in model.graph.output}
    source = _source(outputs, emissions, len(own.transitions))
    first = _batch_first(crf, batch_first)
    known = {x.name for x in [*model.graph.input, *model.graph.output]}
    if isinstance(mask, str) and mask not in known:
        raise Error(f"[onnx] the encoder has no input or output {mask!r} for a mask; it has {', '.join(sorted(known))}")
    names = _Names(source, mask if isinstance(mask, str) else "mask" if mask else None, labels, scores)
    taken = known | {name for node in model.graph.node for name in node.output} | {x.name for x in model.graph.initializer}
    for name in [labels, scores] + (["mask"] if mask is True else []):
        if name in taken:
            raise Error(f"[onnx] the encoder has a value {name!r} already: give the decoder's another name (labels=, scores=, mask=)")
    graph = _decoder_graph(own, names, first, fill, precision, _opset_of(model))
    if mask is True:
        model.graph.input.append(_value("mask", TensorProto.BOOL, *(("B", "T") if first else ("T", "B"))))
    model.graph.node.extend(graph.nodes)
    model.graph.initializer.extend(graph.constants.values())
    model.graph.output.extend(_outputs(names, precision, first))
    return _finished(model, own)


def export(model: Any, args: Any = (), path: Union[str, os.PathLike[str], None] = None, *, precision: str = "float64",
           **options: Any) -> onnx.ModelProto:
    """A PyTorch module as an ONNX model. Every call of `decode_tensor` of a layer becomes a graph of standard operators.

    Args:
        model, args, options: the arguments of `torch.onnx.export`, which needs onnxscript.
        path: where to write the model; None: do not write it.
        precision: as in `decoder`.

    If no sequence is legal, all labels are the fill value. (The layer raises an error.)
    """
    import torch

    from . import torch as _  # noqa: F401  # brings the operator

    translations = {**(options.pop("custom_translation_table", None) or {}), torch.ops.regccrf.viterbi.default: _translate}
    program = torch.onnx.export(model, args, dynamo=True, custom_translation_table=translations, **options)
    assert program is not None
    exported = _expanded(program.model_proto, precision)
    if path is not None:
        onnx.save(exported, os.fspath(path))
    return exported


_DOMAIN = "regccrf"  # of a node that stands for a decoder, until it is expanded


def _translate(h: Any, g: Any, s: Any, e: Any, mask: Any, batch_first: bool, handle: int, fill: int, packed: Any) -> Any:
    """The custom operator as one node. Inputs that are empty, which is to say absent, are left out, and attributes say so."""
    from onnxscript import values

    there = {name: len(x.shape) > 1 or x.shape[0] != 0 for name, x in (("start", s), ("end", e), ("mask", mask))}
    inputs = [h, g, packed, *(x for x, name in ((s, "start"), (e, "end"), (mask, "mask")) if there[name])]
    attributes = {"batch_first": int(batch_first), "fill": fill, **{name: int(is_there) for name, is_there in there.items()}}
    schema = onnx.defs.OpSchema
    types = ("T", ["tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)", "tensor(bool)", "tensor(uint8)"], "")
    any_inputs = schema.FormalParameter("x", "T", param_option=schema.FormalParameterOption.Variadic, is_homogeneous=False)
    declared = schema("viterbi", _DOMAIN, 1, inputs=[any_inputs],
                      outputs=[schema.FormalParameter("labels", "tensor(int64)")], type_constraints=[types],
                      attributes=[schema.Attribute(name, schema.AttrType.INT) for name in attributes])
    return values.Op(values.Opset(_DOMAIN, 1), "viterbi", declared)(*inputs, **attributes)


def _expanded(model: onnx.ModelProto, precision: str) -> onnx.ModelProto:
    """With graphs in the place of the nodes that stand for decoders."""
    graph, nodes, scores = model.graph, [], None
    known = {x.name: x for x in graph.initializer}
    for i, node in enumerate(graph.node):
        if node.domain != _DOMAIN:
            nodes.append(node)
            continue
        given = {one.name: one.i for one in node.attribute}
        emissions, transitions, packed, *rest = node.input
        optional = {name: rest.pop(0) for name in ("start", "end", "mask") if given[name]}
        constraint = Constraint.from_bytes(numpy_helper.to_array(known[packed]).tobytes())
        values = {name: _known(known, name, optional[name]) for name in ("start", "end") if given[name]}
        scores = _scores_of(constraint, _known(known, "transitions", transitions), values.get("start"), values.get("end"))
        prefix = f"regccrf_{i}/"
        names = _Names(emissions, optional.get("mask"), node.output[0], prefix + "scores")
        decoder = _decoder_graph(scores, names, bool(given["batch_first"]), given["fill"], precision, _opset_of(model), prefix)
        nodes += decoder.nodes
        graph.initializer.extend(decoder.constants.values())
    if scores is None:
        raise Error("[onnx] the module does not call decode_tensor, so there is nothing to decode: torch.onnx.export exports it as it is")
    _replace(model, nodes)
    return _finished(model, scores)


def _replace(model: onnx.ModelProto, nodes: Sequence[Any]) -> None:
    """Other nodes; what was only for the old ones goes."""
    graph = model.graph
    used = {name for node in nodes for name in node.input} | {x.name for x in graph.output} | {name for node in nodes for name in _outer(node)}
    constants, opsets = [x for x in graph.initializer if x.name in used], [x for x in model.opset_import if x.domain != _DOMAIN]
    values = [x for x in graph.value_info if x.name in used]
    for field, kept in ((graph.node, list(nodes)), (graph.initializer, constants), (model.opset_import, opsets), (graph.value_info, values)):
        copies = [type(x).FromString(x.SerializeToString()) for x in kept]
        del field[:]
        field.extend(copies)


def _outer(node: Any) -> List[str]:
    """What the graphs inside of a node read."""
    inner = [one for attribute in node.attribute if attribute.HasField("g") for one in attribute.g.node]
    return [name for one in inner for name in [*one.input, *_outer(one)]]


def _known(constants: Dict[str, Any], what: str, name: str) -> np.ndarray:
    if name not in constants:
        raise Error(f"[onnx] the {what} scores are computed in the graph, and decoding needs them as they are: only a layer's own can be exported")
    return np.asarray(numpy_helper.to_array(constants[name]), np.float64)


def _decoder_graph(scores: _Scores, names: _Names, batch_first: bool, fill: int, precision: str, opset: int, prefix: str = "regccrf/") -> _Graph:
    if precision not in _TYPES:
        raise ValueError(f"precision is {precision!r}, expected {' or '.join(map(repr, _TYPES))}")
    if not _OLDEST <= opset <= _NEWEST:
        raise ValueError(f"opset is {opset}, expected {_OLDEST} to {_NEWEST}")
    graph = _Graph(opset, prefix)
    _Decoder(graph, scores, precision, batch_first, fill).add(names)
    return graph


def _outputs(names: _Names, precision: str, batch_first: bool) -> List[Any]:
    shape = ("B", "T") if batch_first else ("T", "B")
    return [_value(names.labels, TensorProto.INT64, *shape), _value(names.scores, _TYPES[precision], "B")]


def _finished(model: onnx.ModelProto, scores: _Scores) -> onnx.ModelProto:
    kept = [one for one in model.metadata_props if one.key != "labels"]
    del model.metadata_props[:]
    model.metadata_props.extend([*kept, onnx.StringStringEntryProto(key="labels", value=json.dumps(list(scores.constraint.labels)))])
    if model.ByteSize() < 1 << 31:
        onnx.checker.check_model(model)
    return model


def _opset_of(model: onnx.ModelProto) -> int:
    opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)
    if not _OLDEST <= opset <= _NEWEST:
        raise Error(f"[onnx] the encoder has opset {opset}, expected {_OLDEST} to {_NEWEST}: export it again, or use onnx.version_converter")
    return int(opset)


def _source(outputs: Dict[str, Any], name: Optional[str], K: int) -> str:
    """The encoder's output with the emissions."""
    if name is None and len(outputs) == 1:
        name = next(iter(outputs))
    if name not in outputs:
        what = "has several outputs" if name is None else f"has no output {name!r}"
        raise Error(f"[onnx] the encoder {what}: emissions= is to name one of {', '.join(outputs)}")
    shape = outputs[name].type.tensor_type.shape
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in shape.dim]
    if outputs[name].type.tensor_type.HasField("shape") and (len(sizes) != 3 or sizes[2] not in (None, K)):
        shown = ["?" if n is None else n for n in sizes]
        raise Error(f"[onnx] the encoder's {name!r} has shape {shown}, expected three dimensions, the last of {K} labels")
    return name


def _batch_first(crf: Any, asked: Optional[bool]) -> bool:
    return bool(getattr(crf, "batch_first", True) if asked is None else asked)


def _scores_of(crf: Any, transitions: Array, start: Array, end: Array) -> _Scores:
    constraint = crf
    if not isinstance(crf, Constraint):
        if not isinstance(getattr(crf, "constraint", None), Constraint):
            raise TypeError(f"crf is a {type(crf).__name__}, expected a Constraint, which regccrf.compile makes, or a layer of regccrf.torch")
        if transitions is not None or start is not None or end is not None:
            raise TypeError("a layer brings its own scores: transitions, start and end go with a Constraint")
        constraint, transitions, start, end = crf.constraint, crf.transitions, crf.start_transitions, crf.end_transitions
    if constraint.rules:
        raise Error(f"[onnx] this constraint keeps {constraint.rules} rules beside its automaton, and a graph needs one automaton: "
                    "regccrf.compile(…, rules=\"none\") multiplies them out where they are few")
    K = len(constraint.labels)
    if transitions is None:
        raise TypeError("transitions are needed with a Constraint: an array [K, K]")
    return _Scores(constraint, _array("transitions", transitions, (K, K)), _array("start", start, (K,)), _array("end", end, (K,)))


def _array(what: str, scores: Array, shape: Tuple[int, ...]) -> np.ndarray:
    """As float64; zeros for None."""
    if scores is None:
        return np.zeros(shape)
    if hasattr(scores, "detach"):  # a tensor
        scores = scores.detach().cpu().double().numpy()
    array = np.array(scores, np.float64)
    if array.shape != shape:
        raise Error(f"[onnx] {what} have shape {array.shape}, expected {shape}")
    if np.isnan(array).any() or np.isposinf(array).any():
        raise Error(f"[onnx] {what} hold NaN or +inf")
    return array
