#include "cli/eval_models.h"

#include <atomic>
#include <exception>
#include <iostream>
#include <map>
#include <thread>

#include "regccrf/error.h"
#include "regccrf/tagger.h"

namespace regccrf::cli {
namespace {

struct Data {
  Format format;
  std::vector<Sentence> sentences;
  std::vector<LabelNames> words, gold;
};

std::string_view cell(const Sentence& sentence, std::int64_t t, int column) {
  const int count = sentence.fields(t), index = column < 0 ? count + column : column - 1;
  if (index >= 0 && index < count) return sentence.field(t, index);
  throw Error(sentence.where(t) + ": there is no column " + std::to_string(column) + " of correct labels");
}

// Gold is a column, or the first field in CRFsuite's format.
Data read(const std::vector<std::string>& paths, Format format, int gold_column) {
  const bool is_crfsuite = format == Format::crfsuite;
  Data data{format, {}, {}, {}};
  for (const std::string& path : paths) {
    SentenceReader reader(path, format);
    for (Sentence sentence; reader.next(sentence);) {
      if (sentence.size() == 0) continue;
      sentence.split();
      LabelNames words, gold;
      for (std::int64_t t = 0; t < sentence.size(); ++t) {
        const bool has_word = !is_crfsuite || sentence.fields(t) > 1;
        words.emplace_back(has_word ? sentence.field(t, is_crfsuite ? 1 : 0) : "");
        gold.emplace_back(is_crfsuite ? sentence.field(t, 0) : cell(sentence, t, gold_column));
      }
      data.words.push_back(std::move(words));
      data.gold.push_back(std::move(gold));
      data.sentences.push_back(std::move(sentence));
    }
  }
  return data;
}

// Decodes blocks of sentences on every thread.
class Decoding {
 public:
  Decoding(const Model& model, const Extractor& extractor, Data& data)
      : model_(model), extractor_(extractor), data_(data), predicted_(data.sentences.size()) {}

  std::vector<LabelNames> run(int threads) {
    const int wanted = threads > 0 ? threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(wanted));
    std::vector<std::thread> others;
    for (int i = 1; i < wanted; ++i)
      others.emplace_back([this, &errors, i] { work(errors[static_cast<std::size_t>(i)]); });
    work(errors[0]);
    for (std::thread& thread : others) thread.join();
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
    return std::move(predicted_);
  }

  std::int64_t without_legal_sequence() const { return without_legal_sequence_; }

 private:
  static constexpr std::size_t kBlock = 32;

  void work(std::exception_ptr& error) {
    try {
      TagOptions options;
      options.no_sequence = NoSequence::free;
      Tagger tagger(model_, extractor_, options);
      for (std::size_t begin; (begin = next_.fetch_add(kBlock)) < data_.sentences.size();) {
        const std::size_t end = std::min(begin + kBlock, data_.sentences.size());
        for (std::size_t i = begin; i < end; ++i) tagger.add(data_.sentences[i]);
        const std::vector<Tagged>& tagged = tagger.decode();
        for (std::size_t i = begin; i < end; ++i) {
          predicted_[i] = model_.labels().names(tagged[i - begin].paths[0].labels);
          if (tagged[i - begin].free) ++without_legal_sequence_;
        }
      }
    } catch (...) {
      error = std::current_exception();
    }
  }

  const Model& model_;
  const Extractor& extractor_;
  Data& data_;
  std::vector<LabelNames> predicted_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<std::int64_t> without_legal_sequence_ = 0;  // too short, mostly: decoded freely
};

std::optional<Constraint> choose_constraint(const std::vector<Model>& models, const ConstraintOptions& given) {
  if (given.given()) return given.constraint(models[0].labels());
  for (const Model& model : models) {
    if (model.constraint()) return model.constraint();
  }
  return std::nullopt;
}

// Gold that no model knows is a wrong column.
void check_labels(const std::vector<Model>& models, const std::vector<LabelNames>& gold) {
  for (const LabelNames& sequence : gold) {
    for (const std::string& label : sequence) {
      for (const Model& model : models) {
        if (model.labels().find(label)) return;
      }
    }
  }
  if (gold.empty()) return;
  throw Error("no correct label, such as '" + gold[0][0] +
              "', is a label of the model; --gold-column says in which column they are");
}

// A model with its way of decoding.
struct Way {
  std::string name, path;
  Model model;
};

std::vector<Way> ways(const Model& model, const std::string& path, const std::optional<Constraint>& constraint) {
  const Way freely{"unconstrained", path, model.with_constraint(std::nullopt, Constrain::none)};
  if (!constraint) return {freely};
  const Constraint fitted = fit_constraint(*constraint, model.labels());
  const bool was_trained_under_it = model.constrain() == Constrain::train;
  if (was_trained_under_it) return {{"constrained training", path, model.with_constraint(fitted, Constrain::train)}};
  return {freely, {"constrained decoding", path, model.with_constraint(fitted, Constrain::decode)}};
}

// Names that are not alone get their model's path.
void tell_apart(std::vector<Way>& all) {
  std::map<std::string, int> count;
  for (const Way& way : all) ++count[way.name];
  for (Way& way : all) {
    if (count[way.name] > 1) way.name += " (" + way.path + ")";
  }
}

}  // namespace

Report tag_with_models(const ModelOptions& options, const std::vector<std::string>& data_paths, int gold_column,
                       const ConstraintOptions& given) {
  std::vector<Model> models;
  for (const std::string& path : options.models) models.push_back(Model::load(path));

  Report report;
  report.options.constraint = choose_constraint(models, given);
  std::vector<Way> all;
  for (std::size_t i = 0; i < models.size(); ++i) {
    for (Way& way : ways(models[i], options.models[i], report.options.constraint)) all.push_back(std::move(way));
  }
  tell_apart(all);

  std::optional<Data> data;
  for (const Way& way : all) {
    const Extractor extractor = Extractor::from_text(way.model.extractor(), options.embeddings);
    if (!data) data = read(data_paths, extractor.format(), gold_column);
    if (data->format != extractor.format()) {
      throw Error("'" + all[0].path + "' and '" + way.path +
                  "' read different formats: columns and CRFsuite's; evaluate them one by one");
    }
    Decoding decoding(way.model, extractor, *data);
    report.systems.push_back({way.name, decoding.run(options.threads), {}});
    if (decoding.without_legal_sequence() > 0) {
      std::cerr << "regccrf: note: " << way.name << ": the language has no sequence of the length of "
                << decoding.without_legal_sequence() << " of " << data->sentences.size()
                << " sequences; they are decoded without it and count as violations\n";
    }
  }
  check_labels(models, data->gold);
  report.words = std::move(data->words);
  report.gold = std::move(data->gold);
  return report;
}

}  // namespace regccrf::cli
