"""The layers that are compared: ours, others' and one that does nothing, with the same weights, and whether they agree.

Each has loss(h, tags) → mean negative log-likelihood, and decode(h) → lists. Others, where they can be imported: pytorch-crf and
torch-struct, which know no constraint, and the original ccrf.
"""

import pathlib

import torch
from torch import nn

import regccrf
from regccrf import _torch_cuda
from regccrf.torch import CRF, RegCCRF

LANGUAGES = pathlib.Path(__file__).resolve().parents[2] / "languages"


class Ours(nn.Module):
    def __init__(self, crf):
        super().__init__()
        self.crf = crf

    def prepare(self, tags):
        return tags

    def loss(self, h, tags, mask=None):
        return self.crf.nll(h, tags, mask=mask, reduction="mean")

    def decode(self, h, mask=None):
        return self.crf.decode(h, mask=mask)

    def enqueue_decode(self, h):
        return _torch_cuda.enqueue_viterbi(*self.crf._detached(h, None, None), self.crf.batch_first, self.crf._handle)


class PytorchCrf(Ours):
    def loss(self, h, tags, mask=None):
        return -self.crf(h, tags, mask=mask, reduction="mean")


class TorchStruct(nn.Module):
    """log_potentials[b, t, to, from]; emissions and start in with the first, end with the last."""

    def __init__(self, crf, library):
        super().__init__()
        self.library, self.crf = library, crf

    def prepare(self, tags):
        return self.library.LinearChainCRF.struct.to_parts(tags.cpu(), self.crf.num_tags).to(tags.device).float()

    def distribution(self, h):
        potentials = self.crf.transitions.t() + h[:, 1:].unsqueeze(3)
        first = (h[:, 0] + self.crf.start_transitions).unsqueeze(1)
        potentials = torch.cat([potentials[:, :1] + first.unsqueeze(2), potentials[:, 1:]], 1)
        potentials = torch.cat([potentials[:, :-1], potentials[:, -1:] + self.crf.end_transitions.view(1, 1, -1, 1)], 1)
        return self.library.LinearChainCRF(potentials)

    def loss(self, h, parts):
        distribution = self.distribution(h)
        return (distribution.partition - (parts * distribution.log_potentials).sum((1, 2, 3))).mean()

    def decode(self, h):
        best = self.distribution(h).argmax
        labels = self.library.LinearChainCRF.struct.from_parts(best)[0]
        return labels.tolist()


class Original(nn.Module):
    """ccrf.RegCCRF, its tables made in one go: its constructor takes minutes for them."""

    def __init__(self, constraint, transitions, ccrf):
        super().__init__()
        arcs, labels = constraint.arc_list(), list(constraint.labels)
        tags = sorted({(a, r) for _, a, r in arcs})
        number = {tag: i for i, tag in enumerate(tags)}
        follows = torch.full((len(tags), len(tags)), -1e4)
        leaving = {}
        for q, a, r in arcs:
            leaving.setdefault(q, []).append(number[a, r])
        for i, (_, state) in enumerate(tags):
            follows[i, leaving.get(state, [])] = 0.0
        model = ccrf.RegCCRF.__new__(ccrf.RegCCRF)
        nn.Module.__init__(model)
        self.accepting = accepting = set(constraint.accepting)
        model.n_tags, model.n_labels, model.labels = len(tags), len(labels), labels
        model.start_tags = set(leaving.get(constraint.start, []))
        model.end_tags = {i for i, (_, r) in enumerate(tags) if r in accepting}
        model.register_buffer("tag2label", torch.tensor([a for a, _ in tags]))
        model.register_buffer("transition_constraints", follows)
        model.register_buffer("indices", model.tag2label.unsqueeze(1) * len(labels) + model.tag2label)
        model.label_transitions = nn.Parameter(transitions.detach().clone())
        self.model, self.constraint, self.number, self.by_source = model, constraint, number, {}
        for q, a, r in arcs:
            self.by_source.setdefault((q, a), []).append(r)

    def encode(self, labels):
        """The tags of a legal sequence: forward over sets of states, then back along one accepting path."""
        sets = [{self.constraint.start}]
        for a in labels:
            sets.append({r for q in sets[-1] for r in self.by_source.get((q, a), ())})
        state = next(q for q in sets[-1] if q in self.accepting)
        tags = []
        for a, before in zip(reversed(labels), reversed(sets[:-1])):
            tags.append(self.number[a, state])
            state = next(q for q in before if state in self.by_source.get((q, a), ()))
        return tags[::-1]

    def prepare(self, tags):
        return torch.tensor([self.encode(row) for row in tags.tolist()], device=tags.device)

    def loss(self, h, y):
        return self.model.loss(h, y)

    def decode(self, h):
        return self.model.tag2label[self.model.map(h)].tolist()


class Graphed(nn.Module):
    """Ours, its forward and its backward kernels in a graph each, for inputs of one shape."""

    def __init__(self, crf, h, tags):
        super().__init__()
        self.layer = Ours(crf)
        self.layer.forward = self.layer.loss
        self.loss = torch.cuda.make_graphed_callables(self.layer, (h.detach().clone().requires_grad_(), tags.clone()))


class Nothing(torch.autograd.Function):
    """Memory for an answer and for gradients, and nothing in it."""

    @staticmethod
    def forward(ctx, *scores):
        ctx.save_for_backward(*scores)
        return scores[0].new_empty(())

    @staticmethod
    def backward(ctx, weight):
        return tuple(map(torch.empty_like, ctx.saved_tensors))


class NoLayer(nn.Module):
    """What PyTorch takes for a layer with our inputs and parameters that has no work to do."""

    def __init__(self, crf):
        super().__init__()
        self.crf = crf

    def loss(self, h, _):
        return Nothing.apply(h, *self.crf.parameters())


def imported(name):
    try:
        return __import__(name)
    except ImportError:
        return None


class Layers:
    """The layers of one language, on the device, with the same weights."""

    def __init__(self, name, device):
        torch.manual_seed(0)
        self.name, self.device = name, device
        self.constraint = None if name.isdigit() else regccrf.compile(LANGUAGES / f"{name}.lang")
        labels = [str(i) for i in range(int(name))] if self.constraint is None else list(self.constraint.labels)
        self.free = CRF(labels, batch_first=True)
        self.crf = self.free if self.constraint is None else self.free.with_constraint(self.constraint)
        self.K = len(labels)
        self.all = {"ours": Ours(self.crf)}
        torchcrf, struct, ccrf = imported("torchcrf"), imported("torch_struct"), imported("ccrf")
        if torchcrf is not None:
            theirs = torchcrf.CRF(self.K, batch_first=True)
            theirs.load_state_dict(self.free.state_dict())
            self.all["pytorch-crf, no constraint"] = PytorchCrf(theirs)
        if struct is not None:
            self.all["torch-struct, no constraint"] = TorchStruct(self.free, struct)
        if ccrf is not None and self.constraint is not None:
            self.all["original"] = Original(self.constraint, self.crf.transitions, ccrf)
        for layer in self.all.values():
            layer.to(device)

    def batch(self, B, T):
        """Emissions and legal gold."""
        torch.manual_seed(B * T)
        h = torch.randn(B, T, self.K)
        with torch.no_grad():
            tags = self.on_cpu().sample(torch.zeros(B, T, self.K), 1, seed=B * T)
        return h.to(self.device), torch.tensor([paths[0] for paths in tags], device=self.device)

    def on_cpu(self):
        copy = RegCCRF(list(self.crf.labels), self.crf.constraint, batch_first=True)
        copy.load_state_dict({k: v.cpu() for k, v in self.crf.state_dict().items()}, strict=False)
        return copy


def close(x, y, tolerance=1e-4):
    return torch.allclose(torch.as_tensor(x).float().cpu(), torch.as_tensor(y).float().cpu(), rtol=tolerance, atol=tolerance)


def check(layers, B=3, T=12):
    """The layers agree: ours with ours on the CPU, with pytorch-crf and torch-struct under no constraint, and with the original."""
    h, tags = layers.batch(B, T)
    h.requires_grad_()
    here, at = layers.on_cpu(), h.detach().cpu().requires_grad_()
    value, expected = layers.all["ours"].loss(h, tags), here.nll(at, tags.cpu(), reduction="mean")
    same = [("CPU", close(value, expected) and close(torch.autograd.grad(value, h)[0], torch.autograd.grad(expected, at)[0])
             and layers.crf.decode(h) == here.decode(at))]
    free = layers.free.nll(h, tags, reduction="mean")
    for name in ("pytorch-crf, no constraint", "torch-struct, no constraint"):
        if name in layers.all:
            layer = layers.all[name]
            same.append((name, close(layer.loss(h, layer.prepare(tags)), free) and layer.decode(h) == layers.free.decode(h)))
    if "original" in layers.all:  # it has no start and end scores
        plain = RegCCRF(list(layers.crf.labels), layers.constraint, batch_first=True, start_end=False).to(h.device)
        plain.transitions.data.copy_(layers.crf.transitions.data)
        layer = layers.all["original"]
        same.append(("original", close(layer.loss(h, layer.prepare(tags)), plain.nll(h, tags, reduction="mean"), 1e-3)
                     and layer.decode(h) == plain.decode(h)))
    wrong = [name for name, good in same if not good]
    if wrong:
        raise SystemExit(f"{layers.name}: ours does not agree with {', '.join(wrong)}: nothing was timed")
    return [name for name, _ in same]


def gradient_call(layer, h, gold):
    parameters = [p for p in layer.parameters() if p.requires_grad]
    return lambda: torch.autograd.grad(layer.loss(h, gold), [h, *parameters], allow_unused=True)


def in_the_callers_thread(call):
    """The call, its backward pass in the thread that asks for it."""
    def run():
        with torch.autograd.set_multithreading_enabled(False):
            return call()
    return run
