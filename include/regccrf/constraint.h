// Constraint: a language compiled for inference (language.h: compile). Immutable, unambiguous, trimmed, laid out for
// the kernels; cheap to copy and safe to share between threads. It loads from a file without the automata engine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regccrf/automaton.h"
#include "regccrf/error.h"
#include "regccrf/labels.h"

namespace regccrf {

struct Topology;  // src/constraint/topology.h: the view that kernels take

class Constraint {
 public:
  // The one-state language of all sequences: an ordinary CRF.
  static Constraint unconstrained(const Labels& labels);
  // Takes an automaton that is already unambiguous. Its states are renumbered and otherwise stay. Error if it is
  // ambiguous, accepts nothing, or has states on no accepting path; LimitError if it is too large to tell.
  static Constraint from_automaton(Automaton automaton, const Labels& labels, std::string method = "given",
                                   std::string text = "");

  const Labels& labels() const;
  const Automaton& automaton() const;
  const Size& size() const;
  bool deterministic() const;
  const std::string& method() const;  // how it was made unambiguous
  const std::string& text() const;    // the pattern or .lang text that it was compiled from, where known

  Membership accepts(std::span<const Label> sequence) const;

  void save(const std::string& path) const;         // whole or not at all
  static Constraint load(const std::string& path);  // Error for a file that is damaged, foreign or of a newer version
  std::string to_bytes() const;                     // what save() writes
  static Constraint from_bytes(std::string_view bytes);

  const Topology& topology() const;  // lives as long as this constraint or a copy of it

 private:
  struct Impl;
  explicit Constraint(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace regccrf
