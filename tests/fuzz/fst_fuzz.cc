// Bytes as an OpenFst binary file. What is read must be a sound automaton that survives being written and read again.
#include "fuzz.h"
#include "language/fst_file.h"

namespace regccrf::fuzz {
namespace {

Budget small_budget() {
  const Limits limits = small_limits();
  return {limits.states, limits.arcs, Budget::kUnlimited, limits.seconds};
}

}  // namespace
}  // namespace regccrf::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regccrf;
  using namespace regccrf::fuzz;
  const Symbols symbols = {{0, "<eps>"}, {1, "A"}, {2, "B"}, {3, "C"}};
  only_errors([&] {
    const NamedAutomaton read = decode_fst(text_of(data, size), symbols, "file.fst", small_budget());
    const Language language = Language::from_automaton(read.automaton, Labels(read.names));
    only_errors([&] { language.count(3, small_limits()); });
    const NamedAutomaton again = decode_fst(encode_fst(read.automaton, read.names), {}, "again.fst", small_budget());
    require(again.names == read.names, "names survive writing and reading");
    require(again.automaton.arcs.size() == read.automaton.arcs.size(), "arcs survive writing and reading");
  });
  return 0;
}
