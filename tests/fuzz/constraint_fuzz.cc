// Bytes as a saved constraint. What loads must be sound, and saving it must give a file that loads as the same.
#include "constraint/constraint_file.h"
#include "fuzz.h"
#include "regccrf/constraint.h"

namespace regccrf::fuzz {
namespace {

Constraint constraint_of(const std::string& bytes) {
  ConstraintFile file = decode_constraint_file(bytes, "file.constraint");
  return Constraint::from_automaton(std::move(file.automaton), file.labels, std::move(file.method),
                                    std::move(file.text));
}

}  // namespace
}  // namespace regccrf::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regccrf;
  using namespace regccrf::fuzz;
  only_errors([&] {
    const Constraint constraint = constraint_of(text_of(data, size));
    const Constraint again = constraint_of(
        encode_constraint_file({constraint.automaton(), constraint.labels(), constraint.method(), constraint.text()}));
    require(again.automaton().arcs == constraint.automaton().arcs, "arcs survive saving and loading");
    require(again.labels() == constraint.labels(), "labels survive saving and loading");
    only_errors(
        [&] { Language::from_automaton(constraint.automaton(), constraint.labels()).count(3, small_limits()); });
  });
  return 0;
}
