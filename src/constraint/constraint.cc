// The compiled constraint: an unambiguous automaton, checked once, and its topology.
#include "regccrf/constraint.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "automaton/automaton.h"
#include "base/file.h"
#include "constraint/constraint_file.h"
#include "constraint/topology.h"

namespace regccrf {

struct Constraint::Impl {
  Impl(Automaton a, const Labels& l, std::string m, std::string t)
      : labels(l),
        automaton(std::move(a)),
        size(measure(automaton)),
        method(std::move(m)),
        text(std::move(t)),
        memory(automaton, labels.size()),
        topology(memory.view()) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Labels labels;
  Automaton automaton;
  Size size;
  std::string method;
  std::string text;
  TopologyMemory memory;
  Topology topology;
};

namespace {

void check(const Automaton& automaton) {
  const std::vector<std::uint8_t> useful = useful_states(automaton);
  if (!useful[automaton.start]) throw Error("[constraint] the language is empty: no label sequence is legal");
  if (std::find(useful.begin(), useful.end(), 0) != useful.end()) {
    throw Error("[constraint] the automaton has states on no accepting path; trim it, or compile it from a Language");
  }
  const std::int64_t most_pairs = 50'000'000;
  const std::optional<bool> unambiguous = test_unambiguous(automaton, most_pairs);
  if (!unambiguous)
    throw LimitError("[constraint] the automaton is too large to test for ambiguity (over 50,000,000 pairs of states)");
  if (!*unambiguous)
    throw Error("[constraint] the automaton is ambiguous: some sequence has two paths; compile it from a Language");
  if (automaton.arcs.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw LimitError("[constraint] more than 2^31 - 1 arcs");
}

}  // namespace

Constraint Constraint::from_automaton(Automaton automaton, const Labels& labels, std::string method, std::string text) {
  normalize(automaton, labels.size());
  check(automaton);
  number_states(automaton);
  return Constraint(std::make_shared<Impl>(std::move(automaton), labels, std::move(method), std::move(text)));
}

Constraint Constraint::unconstrained(const Labels& labels) {
  Automaton automaton;
  automaton.accepting = {1};
  for (Label a = 0; a < labels.size(); ++a) automaton.arcs.push_back({0, a, 0});
  return from_automaton(std::move(automaton), labels, "unconstrained");
}

Constraint::Constraint(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

const Labels& Constraint::labels() const { return impl_->labels; }
const Automaton& Constraint::automaton() const { return impl_->automaton; }
const Size& Constraint::size() const { return impl_->size; }
bool Constraint::deterministic() const { return is_deterministic(impl_->automaton); }
const std::string& Constraint::method() const { return impl_->method; }
const std::string& Constraint::text() const { return impl_->text; }
const Topology& Constraint::topology() const { return impl_->topology; }

Membership Constraint::accepts(std::span<const Label> sequence) const {
  return Tracer(impl_->automaton).trace(sequence.data(), sequence.size());
}

void Constraint::save(const std::string& path) const { write_file(path, to_bytes()); }

std::string Constraint::to_bytes() const {
  return encode_constraint_file({impl_->automaton, impl_->labels, impl_->method, impl_->text});
}

namespace {

Constraint from_file(ConstraintFile file) {
  return Constraint::from_automaton(std::move(file.automaton), file.labels, std::move(file.method),
                                    std::move(file.text));
}

}  // namespace

Constraint Constraint::load(const std::string& path) {
  return from_file(decode_constraint_file(read_file(path), path));
}
Constraint Constraint::from_bytes(std::string_view bytes) {
  return from_file(decode_constraint_file(bytes, "constraint bytes"));
}

}  // namespace regccrf
