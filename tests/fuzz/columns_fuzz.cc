// Bytes as a file of columns, plain or gzip. No byte gets lost, and every sentence that splits gives attributes.
#include "fuzz.h"
#include "regccrf/dataset.h"

namespace regccrf::fuzz {
namespace {

void read_all(const std::string& path, const std::string& bytes) {
  const Extractor words = Extractor::words({});
  const Extractor templates = Extractor::from_template("U00:%x[-1,0]/%x[1,0]\nB\n");
  Names attributes, labels;
  DatasetBuilder builder(attributes, labels, {.gold = false});
  SentenceReader reader(path, Format::columns);
  std::string again;
  std::int64_t positions = 0;
  for (Sentence sentence; reader.next(sentence);) {
    again += sentence.before + sentence.bytes + sentence.after;
    only_errors([&] {
      builder.add(sentence, words);
      builder.add(sentence, templates);
      positions += 2 * sentence.size();
    });
  }
  const bool zipped = bytes.starts_with("\x1f\x8b"), marked = bytes.starts_with("\xef\xbb\xbf");
  require(zipped || marked || again == bytes || again == bytes + "\n", "sentences hold every byte of the file");
  require(builder.take().positions() >= positions, "every row is a position");
}

}  // namespace
}  // namespace regccrf::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace regccrf::fuzz;
  const MemoryFile file(data, size);
  only_errors([&] { read_all(file.path(), text_of(data, size)); });
  return 0;
}
