// Text as feature templates, and as the extractor that a model holds. What parses gives attributes, and does so again
// from its text.
#include "fuzz.h"
#include "regccrf/extract.h"

namespace regccrf::fuzz {
namespace {

struct Collect : AttributeSink {
  void attribute(std::string_view name, float) override { names.append(name).push_back('\n'); }
  void next() override { ++positions; }
  std::string names;
  std::int64_t positions = 0;
};

void use(const Extractor& extractor) {
  if (extractor.columns() > 100) return;
  const std::vector<std::string> row(static_cast<std::size_t>(extractor.columns()), "x");
  Collect once, again;
  extractor.extract(Sentence::of_rows({row, row, row}), once);
  require(once.positions == 3, "every row is a position");
  Extractor::from_text(extractor.text()).extract(Sentence::of_rows({row, row, row}), again);
  require(once.names == again.names, "an extractor survives its text");
}

}  // namespace
}  // namespace regccrf::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regccrf;
  using namespace regccrf::fuzz;
  const std::string text = text_of(data, size);
  only_errors([&] { use(Extractor::from_template(text)); });
  const bool opens_files = text.find("embeddings") != std::string::npos;
  if (!opens_files) only_errors([&] { use(Extractor::from_text(text)); });
  return 0;
}
