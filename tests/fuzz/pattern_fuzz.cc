// Bytes as a pattern or .lang text: parsed, built, compiled; one in four counted too. The language and its compiled
// constraint must agree.
#include <algorithm>
#include <vector>

#include "base/hash.h"
#include "fuzz.h"
#include "regccrf/constraint.h"

namespace regccrf::fuzz {
namespace {

// Small enough for some hundred executions a second; patterns that pass them are as good as larger ones. Few products,
// so that rules are kept beside a base too.
Limits few() {
  Limits limits;
  limits.states = 120;
  limits.arcs = 1'000;
  limits.seconds = 0.05;
  limits.memory = 20;
  limits.products = 2'000;
  return limits;
}

// By the bytes alone, so that a finding comes again.
bool one_in_four(const std::uint8_t* data, std::size_t size) {
  return hash_bytes({reinterpret_cast<const char*>(data), size}) % 4 == 0;
}

// The empty sequence, and all of length 1 and 2 over the first three labels.
std::vector<std::vector<Label>> short_sequences(int labels) {
  std::vector<std::vector<Label>> sequences = {{}};
  const Label most = std::min(labels, 3);
  for (Label a = 0; a < most; ++a) {
    sequences.push_back({a});
    for (Label b = 0; b < most; ++b) sequences.push_back({a, b});
  }
  return sequences;
}

void check_agreement(const Language& language, const Constraint& constraint) {
  for (const std::vector<Label>& sequence : short_sequences(language.labels().size())) {
    const Membership before = language.accepts(sequence, few());
    const Membership after = constraint.accepts(sequence);
    require(before.accepted == after.accepted, "language and constraint accept the same sequences");
    require(before.position == after.position, "language and constraint leave at the same position");
    require(before.possible == after.possible, "language and constraint offer the same labels");
  }
}

}  // namespace
}  // namespace regccrf::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regccrf;
  using namespace regccrf::fuzz;
  only_errors([&] {
    const Language language = Language::parse(text_of(data, size), {}, "pattern", few());
    if (one_in_four(data, size)) {
      only_errors([&] { language.accepts(std::vector<Label>{}, few()); });
      only_errors([&] { language.count(3, few()); });
    }
    check_agreement(language, compile(language, few()));
  });
  return 0;
}
