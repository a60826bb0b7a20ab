// The algebra of automata, by OpenFst.
//
// OpenFst's eager constructions cannot be stopped, so those that explode are used in their delayed form and copied out
// state by state, asking the budget on the way (expand). Its Disambiguate has no delayed form: its one explosive stage,
// a determinisation that keeps apart states without a common future, is run delayed first, to see whether it stays
// small.
#include "language/algebra.h"

#include <fst/determinize.h>
#include <fst/difference.h>
#include <fst/disambiguate.h>
#include <fst/equivalent.h>
#include <fst/intersect.h>
#include <fst/minimize.h>
#include <fst/reverse.h>
#include <fst/rmepsilon.h>

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "automaton/automaton.h"
#include "language/openfst.h"

namespace regccrf {

void make_errors_survivable() { FLAGS_fst_error_fatal = false; }

void check_fst(const fst::Fst<fst::StdArc>& fst, const char* operation) {
  if (fst.Properties(fst::kError, false))
    throw Error("[" + std::string(operation) + "] the automata engine reports an error");
}

Fst to_fst(const Automaton& automaton) {
  make_errors_survivable();
  Fst fst;
  fst.AddStates(automaton.accepting.size());
  fst.SetStart(automaton.start);
  for (State q = 0; q < automaton.states(); ++q) {
    if (automaton.accepting[q]) fst.SetFinal(q, Weight::One());
  }
  for (const Arc& arc : automaton.arcs) {
    fst.AddArc(arc.from, fst::StdArc(arc.label + 1, arc.label + 1, Weight::One(), arc.to));
  }
  return fst;
}

Automaton from_fst(Fst fst) {
  fst::Connect(&fst);
  Automaton automaton;
  if (fst.Start() == fst::kNoStateId) {
    automaton.accepting = {0};
    return automaton;
  }
  automaton.start = fst.Start();
  automaton.accepting.resize(fst.NumStates());
  for (State q = 0; q < fst.NumStates(); ++q) {
    automaton.accepting[q] = fst.Final(q) != Weight::Zero();
    for (fst::ArcIterator<Fst> arcs(fst, q); !arcs.Done(); arcs.Next()) {
      automaton.arcs.push_back({q, arcs.Value().ilabel - 1, arcs.Value().nextstate});
    }
  }
  std::sort(automaton.arcs.begin(), automaton.arcs.end());
  automaton.arcs.erase(std::unique(automaton.arcs.begin(), automaton.arcs.end()), automaton.arcs.end());
  return automaton;
}

namespace {

Fst reversed(const Fst& fst) {
  Fst out;
  fst::Reverse(fst, &out, /*require_superinitial=*/false);
  fst::RmEpsilon(&out);
  check_fst(out, "reverse");
  return out;
}

// Lets every arc pass, and counts: where subsets are large, a few states may take many steps.
class CountingFilter : public fst::DefaultDeterminizeFilter<fst::StdArc> {
 public:
  using Base = fst::DefaultDeterminizeFilter<fst::StdArc>;
  explicit CountingFilter(const fst::Fst<fst::StdArc>& fst) : Base(fst), steps_(std::make_shared<std::int64_t>(0)) {}
  CountingFilter(const CountingFilter& other, const fst::Fst<fst::StdArc>* fst = nullptr)
      : Base(other, fst), steps_(other.steps_) {}
  bool FilterArc(const fst::StdArc& arc, const Element& source, Element&& target, LabelMap* arcs) const {
    ++*steps_;
    return Base::FilterArc(arc, source, std::move(target), arcs);
  }
  std::shared_ptr<const std::int64_t> steps() const { return steps_; }

 private:
  std::shared_ptr<std::int64_t> steps_;
};

Fst determinized(const Fst& fst, const Budget& budget) {
  fst::DeterminizeFstOptions<fst::StdArc, fst::DefaultCommonDivisor<Weight>, CountingFilter> options;
  options.gc_limit = 0;
  options.filter = new CountingFilter(fst);  // owned by DeterminizeFst
  const auto steps = options.filter->steps();
  return expand(fst::DeterminizeFst<fst::StdArc>(fst, options), "determinise", budget, steps.get());
}

Fst minimized(const Fst& fst, const Budget& budget) {
  Fst dfa = determinized(fst, budget);
  fst::Minimize(&dfa);
  check_fst(dfa, "minimise");
  return dfa;
}

Fst label_sorted(const Automaton& automaton) {
  Fst fst = to_fst(automaton);
  fst::ArcSort(&fst, fst::ILabelCompare<fst::StdArc>());
  return fst;
}

fst::CacheOptions visit_once() {
  fst::CacheOptions options;
  options.gc = true;
  options.gc_limit = 0;
  return options;
}

// Which pairs of states have a common future: some sequence leads both to acceptance. [Q, Q]
class CommonFuture {
 public:
  CommonFuture() = default;  // OpenFst's filter wants one; never used
  explicit CommonFuture(const Automaton& automaton)
      : states_(automaton.states()), related_(std::make_shared<std::vector<bool>>(std::size_t(states_) * states_)) {
    std::vector<std::vector<std::pair<Label, State>>> back(states_);  // sorted by label, as arcs are visited
    std::vector<Arc> arcs = automaton.arcs;
    std::sort(arcs.begin(), arcs.end(), [](const Arc& x, const Arc& y) { return x.label < y.label; });
    for (const Arc& arc : arcs) back[arc.to].emplace_back(arc.label, arc.from);
    std::vector<std::pair<State, State>> open;
    const auto relate = [&](State x, State y) {
      if ((*related_)[at(x, y)]) return;
      (*related_)[at(x, y)] = true;
      open.emplace_back(x, y);
    };
    for (State x = 0; x < states_; ++x) {
      for (State y = 0; y < states_; ++y) {
        if (automaton.accepting[x] && automaton.accepting[y]) relate(x, y);
      }
    }
    while (!open.empty()) {
      const auto [x, y] = open.back();
      open.pop_back();
      auto from_y = back[y].begin();
      for (const auto& [label, p] : back[x]) {
        while (from_y != back[y].end() && from_y->first < label) ++from_y;
        for (auto it = from_y; it != back[y].end() && it->first == label; ++it) relate(p, it->second);
      }
    }
  }
  bool operator()(State x, State y) const { return (*related_)[at(x, y)]; }

 private:
  std::size_t at(State x, State y) const { return std::size_t(x) * states_ + y; }
  State states_ = 0;
  std::shared_ptr<std::vector<bool>> related_;
};

}  // namespace

Fst without_epsilon(const Fst& fst, const Budget& budget) {
  if (!fst.Properties(fst::kEpsilons, true)) return fst;
  return expand(fst::RmEpsilonFst<fst::StdArc>(fst), "remove epsilon", budget);
}

Automaton remove_epsilon(const Automaton& automaton, const Budget& budget) {
  return from_fst(without_epsilon(to_fst(automaton), budget));
}

Automaton trim(const Automaton& automaton) { return from_fst(to_fst(automaton)); }

Automaton reverse(const Automaton& automaton) { return from_fst(reversed(to_fst(automaton))); }

Automaton minimal_dfa(const Automaton& automaton, const Budget& budget) {
  return from_fst(minimized(to_fst(automaton), budget));
}

Automaton codeterministic(const Automaton& automaton, const Budget& budget) {
  return from_fst(reversed(minimized(reversed(to_fst(automaton)), budget)));
}

Automaton intersect(const Automaton& x, const Automaton& y, const Budget& budget) {
  const Fst fx = label_sorted(x), fy = label_sorted(y);
  return from_fst(expand(fst::IntersectFst<fst::StdArc>(fx, fy, visit_once()), "intersect", budget));
}

Automaton intersect_all(const std::vector<const Automaton*>& operands, const Budget& budget) {
  if (operands.size() == 1) return *operands[0];
  using Product = fst::IntersectFst<fst::StdArc>;  // of delayed products: a state of theirs is made when ours needs it
  auto product = std::make_unique<Product>(label_sorted(*operands[0]), label_sorted(*operands[1]));
  for (std::size_t i = 2; i < operands.size(); ++i) {
    budget.check_time("intersect");
    product = std::make_unique<Product>(*product, label_sorted(*operands[i]));
  }
  return from_fst(expand(*product, "intersect", budget));
}

Automaton difference(const Automaton& x, const Automaton& y, const Budget& budget) {
  const Fst fx = label_sorted(x);
  Fst fy = determinized(to_fst(y), budget);
  fst::ArcSort(&fy, fst::ILabelCompare<fst::StdArc>());
  return from_fst(expand(fst::DifferenceFst<fst::StdArc>(fx, fy, visit_once()), "difference", budget));
}

namespace {

// Pairs of arcs with equal labels: what relating every two states costs, in ours and in OpenFst's own relation.
std::int64_t pairs_of_arcs(const Automaton& automaton) {
  std::unordered_map<Label, std::int64_t> arcs;
  for (const Arc& arc : automaton.arcs) ++arcs[arc.label];
  std::int64_t pairs = 0;
  for (const auto& [label, count] : arcs) pairs += count * count;
  return pairs;
}

void check_can_be_disambiguated(const Automaton& automaton) {
  const State most_states = 1'000;  // the common-future relation is a square of this
  const std::int64_t most_pairs = 10'000'000;
  if (automaton.states() > most_states) {
    throw LimitError("[disambiguate] works on at most 1000 states, and there are " +
                     std::to_string(automaton.states()));
  }
  if (const std::int64_t pairs = pairs_of_arcs(automaton); pairs > most_pairs) {
    throw LimitError("[disambiguate] works on at most 10,000,000 pairs of arcs with equal labels, and there are " +
                     std::to_string(pairs));
  }
}

}  // namespace

Automaton disambiguate(const Automaton& automaton, const Budget& budget) {
  check_can_be_disambiguated(automaton);
  Fst fst = label_sorted(automaton);
  using Filter = fst::internal::RelationDeterminizeFilter<fst::StdArc, CommonFuture>;
  fst::DeterminizeFstOptions<fst::StdArc, fst::DefaultCommonDivisor<Weight>, Filter> options;
  options.gc_limit = 0;
  options.filter = new Filter(fst, new CommonFuture(automaton));  // both owned by DeterminizeFst
  expand(fst::DeterminizeFst<fst::StdArc>(fst, options), "disambiguate", budget);

  Fst out;
  fst::Disambiguate(fst, &out);
  check_fst(out, "disambiguate");
  return from_fst(std::move(out));
}

bool equivalent(const Automaton& x, const Automaton& y, const Budget& budget) {
  const Fst fx = minimized(to_fst(x), budget), fy = minimized(to_fst(y), budget);
  bool error = false;
  const bool same = fst::Equivalent(fx, fy, fst::kDelta, &error);
  if (error) throw Error("[equals] the automata engine reports an error");
  return same;
}

}  // namespace regccrf
