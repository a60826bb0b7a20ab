// Text as what `crfsuite dump` prints. What is read is a model.
#include "fuzz.h"
#include "regccrf/crfsuite.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regccrf;
  using namespace regccrf::fuzz;
  const MemoryFile file(data, size);
  only_errors([&] { Model(import_crfsuite(file.path())).to_bytes(); });
  return 0;
}
