// Bytes as CRFsuite's attribute format.
#include "fuzz.h"
#include "regccrf/dataset.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regccrf;
  using namespace regccrf::fuzz;
  const MemoryFile file(data, size);
  only_errors([&] {
    Names attributes, labels;
    const Dataset set = read_dataset({file.path()}, Format::crfsuite, Extractor::attributes(), attributes, labels);
    require(set.gold.size() == static_cast<std::size_t>(set.positions()), "a label for every position");
    require(set.value.empty() || set.value.size() == set.attribute.size(), "a value for every attribute");
    require(set.weight.empty() || set.weight.size() == static_cast<std::size_t>(set.sequences()),
            "a weight for every sequence");
  });
  only_errors([&] { SentenceReader(file.path()).format(); });
  return 0;
}
