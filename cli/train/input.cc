#include "cli/train/input.h"

#include <filesystem>

#include "base/file.h"
#include "base/utf8.h"
#include "regccrf/error.h"

namespace regccrf::cli {
namespace {

Format format_of(const std::string& name) {
  return name == "columns" ? Format::columns : name == "crfsuite" ? Format::crfsuite : Format::automatic;
}

WordFeatures word_features(const TrainArguments& arguments) {
  WordFeatures features;
  features.word = arguments.word_column - 1;
  for (const int column : arguments.columns) features.columns.push_back(column - 1);
  for (const std::string& list : arguments.lists) {
    const auto equals = list.find('=');
    const std::string name =
        equals == std::string::npos ? std::filesystem::path(list).stem().string() : list.substr(0, equals);
    features.lists.push_back(WordList::load(name, equals == std::string::npos ? list : list.substr(equals + 1)));
  }
  features.embeddings = arguments.embeddings;
  return features;
}

Extractor choose_extractor(const TrainArguments& arguments, Format format) {
  const bool for_words = !arguments.lists.empty() || !arguments.embeddings.empty() || !arguments.columns.empty();
  if (format == Format::crfsuite) {
    if (!arguments.pattern_file.empty()) throw Error("--template needs columns, and the data is in CRFsuite's format");
    if (for_words) throw Error("--list, --embeddings and --columns need columns, and the data is in CRFsuite's format");
    return Extractor::attributes();
  }
  if (arguments.pattern_file.empty()) return Extractor::words(word_features(arguments));
  if (for_words)
    throw Error("--list, --embeddings and --columns belong to the built-in features; a template replaces these");
  return Extractor::from_template(std::string(without_mark(read_file(arguments.pattern_file))), arguments.pattern_file);
}

Dataset read(const TrainArguments& arguments, const std::vector<std::string>& paths, Input& input, Names& labels,
             bool grow) {
  ReadOptions how;
  how.unknown = arguments.unknown;
  how.label_column = arguments.label_column > 0 ? arguments.label_column - 1 : arguments.label_column;
  how.grow = grow;
  DatasetBuilder builder(input.attributes, labels, how);
  for (const std::string& path : paths) {
    SentenceReader reader(path, input.format);
    if (!input.extractor) {
      input.format = reader.format();
      input.extractor = choose_extractor(arguments, input.format);
    }
    builder.read(reader, *input.extractor);
  }
  return builder.take();
}

}  // namespace

Input read_all(const TrainArguments& arguments) {
  Input input;
  input.format = format_of(arguments.format);
  if (!arguments.continue_from.empty()) input.initial = Model::load(arguments.continue_from);
  input.data = read(arguments, arguments.data, input, input.labels, true);
  if (input.data.sequences() == 0) throw Error("there is no sequence in " + arguments.data[0]);
  if (!arguments.development.empty()) {
    input.development_labels = input.labels;
    input.development = read(arguments, {arguments.development}, input, input.development_labels, false);
    if (input.development->sequences() == 0) throw Error("there is no sequence in " + arguments.development);
  }
  return input;
}

}  // namespace regccrf::cli
