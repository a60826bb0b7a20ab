// regccrf tag: labels for sentences, as a filter. Sentences go to threads in batches; what comes out is in the order of
// what went in, and has its lines.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/in_order.h"
#include "cli/model_options.h"
#include "regccrf/error.h"
#include "regccrf/tagger.h"

namespace regccrf::cli {

void write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Error(std::string("cannot write to standard output: ") + std::strerror(errno));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

namespace {

constexpr std::int64_t kBatch = 4096;  // positions

struct Options {
  std::string model, input = "-", embeddings, no_sequence = "error";
  ConstraintOptions constraint;
  bool unconstrained = false, labels_only = false, json = false;
  int forced = 0, threads = 0;
  TagOptions tag;
};

struct Sentences {
  std::vector<Sentence> sentences;
  std::size_t count = 0;  // of those that are filled
  std::int64_t positions = 0;
  std::string out;
};

// How results become text.
class Writer {
 public:
  Writer(const Options& options, const Labels& labels) : options_(options), labels_(labels) {
    for (const std::string& name : labels.names()) {
      if (options.json) in_json_.push_back(nlohmann::json(name).dump());
    }
  }

  void write(const Sentence& sentence, const Tagged& tagged, std::string& out) const {
    if (options_.json) {
      if (sentence.size() > 0) write_json(sentence, tagged, out);
      return;
    }
    write_between(sentence, sentence.before, out);
    for (std::int64_t t = 0; t < sentence.size(); ++t) write_row(sentence, t, tagged, out);
    write_between(sentence, sentence.after, out);
  }

 private:
  // Lines that are no rows stay; declarations of CRFsuite's format say nothing about labels.
  static void write_between(const Sentence& sentence, std::string_view lines, std::string& out) {
    if (sentence.format != Format::crfsuite) {
      out += lines;
      return;
    }
    while (!lines.empty()) {
      const std::size_t end = std::min(lines.find('\n') + 1, lines.size());
      if (lines[0] != '@') out += lines.substr(0, end);
      lines.remove_prefix(end);
    }
  }

  void write_row(const Sentence& sentence, std::int64_t t, const Tagged& tagged, std::string& out) const {
    const std::string_view row = sentence.row(t);
    const bool labels_only = options_.labels_only || sentence.format == Format::crfsuite;
    const char separator = labels_only || row.find('\t') != std::string_view::npos ? '\t' : ' ';
    if (!labels_only) out.append(row).push_back(separator);
    const auto at = static_cast<std::size_t>(t);
    const auto k = static_cast<std::size_t>(options_.tag.k_best);
    for (std::size_t i = 0; i < k; ++i) {
      if (i > 0) out.push_back(separator);
      out += i < tagged.paths.size() ? std::string_view(labels_.name(tagged.paths[i].labels[at])) : "_";
    }
    if (options_.tag.scores) {
      number(separator, tagged.paths.empty() ? 0 : tagged.marginals[at], out);
      for (std::size_t i = 0; i < k; ++i)
        number(separator, i < tagged.paths.size() ? std::exp(tagged.paths[i].score) : 0, out);
    }
    if (options_.tag.language_mass) number(separator, tagged.language_mass, out);
    if (options_.tag.all_marginals) all_marginals(separator, tagged, at, out);
    out += sentence.bytes[sentence.begin[at] + row.size()] == '\r' ? "\r\n" : "\n";
  }

  // LABEL:probability, a column a label.
  void all_marginals(char separator, const Tagged& tagged, std::size_t t, std::string& out) const {
    const auto K = static_cast<std::size_t>(labels_.size());
    for (std::size_t a = 0; a < K; ++a) {
      out.append(1, separator).append(labels_.name(static_cast<Label>(a)));
      number(':', tagged.all_marginals[t * K + a], out);
    }
  }

  static void number(char separator, double value, std::string& out) {
    char text[32];
    std::snprintf(text, sizeof text, "%c%.6g", separator, value);
    out += text;
  }

  void labels_as_json(const Path& path, std::string& out) const {
    out += '[';
    for (std::size_t t = 0; t < path.labels.size(); ++t) {
      if (t > 0) out += ',';
      out += in_json_[static_cast<std::size_t>(path.labels[t])];
    }
    out += ']';
  }

  // An object a token.
  void all_marginals_as_json(const Tagged& tagged, std::string& out) const {
    out += ",\"all_marginals\":[";
    for (std::size_t i = 0; i < tagged.all_marginals.size(); ++i) {
      const std::size_t a = i % in_json_.size();
      out += a > 0 ? "," : i > 0 ? ",{" : "{";
      out += in_json_[a] + ":" + nlohmann::json(tagged.all_marginals[i]).dump();
      if (a + 1 == in_json_.size()) out += '}';
    }
    out += ']';
  }

  void write_json(const Sentence& sentence, const Tagged& tagged, std::string& out) const {
    out += "{\"line\":" + std::to_string(sentence.line) + ",\"labels\":";
    if (tagged.paths.empty()) {
      out += "null";
    } else {
      labels_as_json(tagged.paths[0], out);
    }
    if (options_.tag.scores && !tagged.paths.empty()) {
      out += ",\"probability\":" + nlohmann::json(std::exp(tagged.paths[0].score)).dump() +
             ",\"marginals\":" + nlohmann::json(tagged.marginals).dump();
    }
    if (options_.tag.k_best > 1) {
      out += ",\"k_best\":[";
      for (std::size_t i = 0; i < tagged.paths.size(); ++i) {
        out += i > 0 ? ",{\"labels\":" : "{\"labels\":";
        labels_as_json(tagged.paths[i], out);
        if (options_.tag.scores) out += ",\"probability\":" + nlohmann::json(std::exp(tagged.paths[i].score)).dump();
        out += '}';
      }
      out += ']';
    }
    if (options_.tag.language_mass) out += ",\"language_mass\":" + nlohmann::json(tagged.language_mass).dump();
    if (options_.tag.all_marginals) all_marginals_as_json(tagged, out);
    if (tagged.free) out += ",\"free\":true";
    out += "}\n";
  }

  const Options& options_;
  const Labels& labels_;
  std::vector<std::string> in_json_;
};

// Labels a batch and leaves the text in it; gives the number of sentences that have no legal sequence.
std::int64_t tag_batch(const Options& options, const Writer& writer, Tagger& tagger, Sentences& batch) {
  for (std::size_t i = 0; i < batch.count; ++i) tagger.add(batch.sentences[i]);
  const std::vector<Tagged>& tagged = tagger.decode();
  std::int64_t none = 0;
  for (std::size_t i = 0; i < batch.count; ++i) {
    const Sentence& sentence = batch.sentences[i];
    const bool impossible = sentence.size() > 0 && (tagged[i].paths.empty() || tagged[i].free);
    if (impossible && options.no_sequence == "error") {
      throw Error(sentence.where(0) + ": the sentence " + tagger.reason(static_cast<std::int64_t>(i)) +
                  "; --no-sequence free labels such sentences without the constraint, --no-sequence empty leaves "
                  "them without labels");
    }
    none += impossible;
    writer.write(sentence, tagged[i], batch.out);
  }
  return none;
}

// Hands the input over in batches: those that are full, and what there is whenever the input pauses.
void feed(SentenceReader& reader, InOrder<Sentences>& pool) {
  std::unique_ptr<Sentences> batch = pool.take();
  const auto hand_over = [&] {
    pool.put(std::move(batch));
    batch = pool.take();
    batch->count = 0;
    batch->positions = 0;
  };
  for (;;) {
    if (batch->count > 0 && (batch->positions >= kBatch || reader.would_wait())) hand_over();
    if (batch->count == batch->sentences.size()) batch->sentences.emplace_back();
    if (!reader.next(batch->sentences[batch->count])) break;
    batch->positions += batch->sentences[batch->count].size();
    ++batch->count;
  }
  if (batch->count > 0) hand_over();
}

void say_how_many_had_none(std::int64_t none, const Options& options) {
  std::cerr << "regccrf: note: " << none
            << (none == 1 ? " sentence has no legal sequence and was " : " sentences have no legal sequence and were ")
            << (options.no_sequence == "free" ? "labelled without the constraint" : "left without labels") << "\n";
}

// A file of the other format is labelled without complaint, and the labels are worth nothing.
void say_other_format(const std::vector<std::unique_ptr<Tagger>>& taggers, Format format, SentenceReader& reader) {
  std::int64_t known = 0;
  for (const auto& tagger : taggers) known += tagger->known();
  if (reader.columns() == 0) return;
  if (format == Format::columns && reader.looks() == Format::crfsuite) {
    std::cerr << "regccrf: note: the input looks like CRFsuite's attributes, and the model was trained on columns\n";
  } else if (format == Format::crfsuite && known == 0) {
    std::cerr << "regccrf: note: the model knows no attribute of the input; it was trained on CRFsuite's attributes: "
                 "label TAB attribute TAB …\n";
  }
}

int tag_command(Options& options) {
  const Model loaded = Model::load(options.model);
  const Model model = options.unconstrained ? loaded.with_constraint(std::nullopt, Constrain::none)
                                            : under_constraint(loaded, options.constraint);
  const Extractor extractor = Extractor::from_text(model.extractor(), options.embeddings);
  options.tag.forced_column = options.forced - 1;
  if (options.forced > 0 && extractor.format() == Format::crfsuite) options.tag.forced_column = 0;
  options.tag.no_sequence = options.no_sequence == "free" ? NoSequence::free : NoSequence::empty;
  const Writer writer(options, model.labels());

  const int threads =
      options.threads > 0 ? options.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::unique_ptr<Tagger>> taggers;
  for (int i = 0; i < threads; ++i) taggers.push_back(std::make_unique<Tagger>(model, extractor, options.tag));

  std::atomic<std::int64_t> none{0};
  InOrder<Sentences> pool(threads, [&](Sentences& batch, int member) {
    none += tag_batch(options, writer, *taggers[static_cast<std::size_t>(member)], batch);
  });
  SentenceReader reader(options.input, extractor.format());
  feed(reader, pool);
  pool.finish();
  say_other_format(taggers, extractor.format(), reader);
  if (none > 0) say_how_many_had_none(none, options);
  return 0;
}

constexpr const char* kFooter =
    "The input has the format of the training data (columns, or CRFsuite's attributes), plain or gzipped. The label "
    "is\n"
    "added as the last column; for CRFsuite's attributes only labels are printed. Lines and their order stay as they "
    "are.\n"
    "tag is a filter: it needs constant memory, and answers whenever the input pauses after a sentence.\n"
    "\n"
    "  regccrf tag -m ner.model test.conll > tagged.conll\n"
    "  cut -f1 raw.tsv | regccrf tag -m ner.model --scores            label, its probability, that of the sequence\n"
    "  regccrf tag -m ner.model --marginals test.conll                probability of every label: O:0.9 B-PER:0.06 …\n"
    "  regccrf tag -m ner.model --k-best 3 test.conll                 three label columns, best first\n"
    "  regccrf tag -m ner.model -e '(O | B-PER I-PER*)*' test.conll   under another constraint\n"
    "  regccrf tag -m ner.model --forced 2 partly.conll               keeps the labels of column 2; _ is not known\n"
    "  zcat *.gz | parallel --pipe --recend '\\n\\n' regccrf tag -m ner.model\n"
    "\n"
    "Added columns, in this order:\n"
    "  the label (with --k-best K, K of them; _ if there are fewer)\n"
    "  --scores: the marginal probability of the first label, and the probability of each of the K sequences\n"
    "  --language-mass: P(L | x), the probability of all legal sequences without the constraint\n"
    "  --marginals: LABEL:probability for every label, as CRFsuite's -l prints them";

void add_file_options(CLI::App& command, Options& options) {
  command.add_option("-m,--model", options.model, "the model")->required()->type_name("FILE");
  command.add_option("input", options.input, "sentences; standard input if absent or -")->type_name("INPUT");
}

// What is printed for a token.
void add_column_options(CLI::App& command, Options& options) {
  command.add_flag("--labels-only", options.labels_only, "print only the labels");
  command.add_flag("--scores", options.tag.scores, "add probabilities");
  command.add_option("--k-best", options.tag.k_best, "the K best sequences")
      ->check(CLI::Range(1, 10'000))
      ->type_name("K");
  command.add_flag("--marginals", options.tag.all_marginals,
                   "add a column LABEL:probability for every label, in the order of the model");
  command.add_flag("--language-mass", options.tag.language_mass, "add P(L | x)");
}

// Which sequences are legal, and what becomes of a sentence that has none.
void add_constraint_options(CLI::App& command, Options& options) {
  options.constraint.add_to(command);
  command.add_flag("--unconstrained", options.unconstrained, "ignore the model's constraint")
      ->excludes("--constraint")
      ->excludes("--expression");
  command
      .add_option("--forced", options.forced,
                  "keep the labels of this column, counted from 1; empty or _: not known (CRFsuite's format: 1)")
      ->check(CLI::PositiveNumber)
      ->type_name("COLUMN");
  command
      .add_option("--no-sequence", options.no_sequence,
                  "a sentence that has no legal sequence: error, free (label it without the constraint) or empty "
                  "(label it _)")
      ->check(CLI::IsMember({"error", "free", "empty"}))
      ->capture_default_str()
      ->type_name("WHAT");
}

void add_other_options(CLI::App& command, Options& options) {
  command.add_option("--embeddings", options.embeddings, "the path of the model's embeddings file, if it has moved")
      ->type_name("FILE");
  command.add_flag(
      "--json", options.json,
      "print one JSON object for each sentence: line, labels, probability, marginals, k_best, language_mass, "
      "all_marginals");
  command.add_option("--threads", options.threads, "0: all cores")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

}  // namespace

Run add_tag(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tag", "Label sentences with a model.");
  command->footer(kFooter);
  auto options = std::make_shared<Options>();
  // In the order in which --help shows them.
  add_file_options(*command, *options);
  add_column_options(*command, *options);
  add_constraint_options(*command, *options);
  add_other_options(*command, *options);
  return [options] { return tag_command(*options); };
}

}  // namespace regccrf::cli
