// Model, Extractor, Data, training and tagging. Sentences come as Python lists: at each position attributes (a dict or
// a list, as python-crfsuite takes them) or a row of columns, as the extractor wants.
#include "regccrf/tagger.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "bind.h"
#include "regccrf/crfsuite.h"
#include "regccrf/trainer.h"
#include "tagger/development.h"

namespace py = pybind11;

namespace regccrf::python {
namespace {

using Unlocked = py::call_guard<py::gil_scoped_release>;

std::string_view text_of(py::handle value) {
  if (PyBytes_Check(value.ptr()))
    return {PyBytes_AS_STRING(value.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(value.ptr()))};
  Py_ssize_t size = 0;
  const char* text = PyUnicode_Check(value.ptr()) ? PyUnicode_AsUTF8AndSize(value.ptr(), &size) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    throw py::type_error("a string is needed, not " + py::repr(value).cast<std::string>() + " (" +
                         py::str(py::type::of(value).attr("__name__")).cast<std::string>() + ")");
  }
  return {text, static_cast<std::size_t>(size)};
}

std::string label_of(py::handle value) {
  try {
    return std::string(text_of(value));
  } catch (const py::type_error& error) {
    throw py::type_error("labels are names: " + std::string(error.what()));
  }
}

bool is_text(py::handle value) { return PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()); }

float number_of(py::handle value, const std::string& name) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    throw py::type_error("the value of '" + name + "' is " + py::repr(value).cast<std::string>() +
                         "; it may be a number, a string, a dict, a list or a set of strings");
  }
  if (!std::isfinite(static_cast<float>(number))) throw py::value_error("the value of '" + name + "' is not finite");
  return static_cast<float>(number);
}

bool is_collection(py::handle value) {
  return PyList_Check(value.ptr()) || PyTuple_Check(value.ptr()) || PyAnySet_Check(value.ptr());
}

// {"a": 2} → a = 2; {"a": "b"} → a:b; {"a": {"b": 2}} → a:b = 2; {"a": ["b", "c"]} → a:b, a:c; ["a", "b"] → a, b
void feed(py::handle item, std::string& prefix, AttributeSink& sink) {
  const std::size_t size = prefix.size();
  if (PyDict_Check(item.ptr())) {
    for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(item)) {
      prefix += text_of(key);
      if (is_text(value)) {
        prefix += ':';
        prefix += text_of(value);
        sink.attribute(prefix, 1);
      } else if (PyDict_Check(value.ptr()) || is_collection(value)) {
        prefix += ':';
        feed(value, prefix, sink);
      } else {
        sink.attribute(prefix, number_of(value, prefix));
      }
      prefix.resize(size);
    }
    return;
  }
  if (!is_collection(item)) {
    throw py::type_error("a position's attributes are a dict or a list of strings, not " +
                         py::repr(item).cast<std::string>());
  }
  for (py::handle name : item) {
    prefix += text_of(name);
    sink.attribute(prefix, 1);
    prefix.resize(size);
  }
}

std::vector<std::string> row_of(py::handle position) {
  if (is_text(position)) return {std::string(text_of(position))};
  std::vector<std::string> row;
  if (!PyList_Check(position.ptr()) && !PyTuple_Check(position.ptr())) {
    throw py::type_error("a row is a word or a list of columns, not " + py::repr(position).cast<std::string>());
  }
  for (py::handle field : position) row.emplace_back(text_of(field));
  return row;
}

// Every attribute of a sentence, position after position.
void feed_sentence(py::handle sentence, const Extractor& extractor, AttributeSink& sink) {
  if (extractor.format() == Format::crfsuite) {
    std::string prefix;
    for (py::handle position : sentence) {
      feed(position, prefix, sink);
      sink.next();
    }
    return;
  }
  std::vector<std::vector<std::string>> rows;
  for (py::handle position : sentence) rows.push_back(row_of(position));
  extractor.extract(Sentence::of_rows(rows), sink);
}

// --- training -------------------------------------------------------------------------------------------------------

ReadOptions read_options(const std::string& unknown, int label_column, bool grow) {
  ReadOptions options;
  options.unknown = unknown;
  options.label_column = label_column;
  options.grow = grow;
  return options;
}

class Data {
 public:
  Data(Extractor extractor, const std::string& unknown, int label_column)
      : Data(std::make_shared<Names>(), std::make_shared<Names>(), std::move(extractor),
             read_options(unknown, label_column, true)) {}
  // With the same attributes, and labels of its own: what only development data has is not learnt.
  Data development() const {
    ReadOptions options = options_;
    options.grow = false;
    return Data(attributes_, std::make_shared<Names>(*labels_), extractor_, options);
  }

  void add(py::handle x, py::handle y) {
    Staged staged(*builder_);
    feed_sentence(x, extractor_, staged);
    std::vector<std::string> labels;  // copies: what a generator or an array gives is gone at the next step
    for (py::handle label : y) labels.push_back(label_of(label));
    if (labels.size() != staged.positions()) {
      throw py::value_error("a sequence has " + std::to_string(staged.positions()) + " positions and " +
                            std::to_string(labels.size()) + (labels.size() == 1 ? " label" : " labels") +
                            (is_text(x) || is_text(y) ? "; a str is a sequence of characters" : ""));
    }
    staged.send(labels);
    builder_->end();
  }
  void read(const std::string& path, const std::string& format) {
    SentenceReader reader(path, format == "crfsuite"  ? Format::crfsuite
                                : format == "columns" ? Format::columns
                                                      : Format::automatic);
    builder_->read(reader, extractor_);
  }
  std::vector<std::string> labels() const {
    std::vector<std::string> names;
    for (std::int32_t i = 0; i < labels_->size(); ++i) names.emplace_back(labels_->name(i));
    return names;
  }

  // Gold numbered as `labels`. What was collected is gone.
  Dataset take(const Labels& labels) {
    Dataset data = builder_->take();
    for (Label& gold : data.gold) {
      if (gold != kUnknownLabel) gold = labels.id(labels_->name(gold));
    }
    return data;
  }
  const Names& attributes() const { return *attributes_; }
  const Names& label_names() const { return *labels_; }
  const Extractor& extractor() const { return extractor_; }

 private:
  // Attributes of one sequence, held back until all of it is known to be sound.
  class Staged : public AttributeSink {
   public:
    explicit Staged(DatasetBuilder& builder) : builder_(builder) {}
    void attribute(std::string_view name, float value) override {
      items_.push_back({text_.size(), name.size(), value});
      text_ += name;
    }
    void next() override { end_.push_back(items_.size()); }
    std::size_t positions() const { return end_.size(); }
    void send(const std::vector<std::string>& labels) {
      std::size_t i = 0;
      for (std::size_t t = 0; t < end_.size(); ++t) {
        for (; i < end_[t]; ++i)
          builder_.attribute(std::string_view(text_).substr(items_[i].begin, items_[i].length), items_[i].value);
        builder_.next(labels[t]);
      }
    }

   private:
    struct Item {
      std::size_t begin, length;
      float value;
    };
    DatasetBuilder& builder_;
    std::string text_;
    std::vector<Item> items_;
    std::vector<std::size_t> end_;
  };

  Data(std::shared_ptr<Names> attributes, std::shared_ptr<Names> labels, Extractor extractor, ReadOptions options)
      : attributes_(std::move(attributes)),
        labels_(std::move(labels)),
        extractor_(std::move(extractor)),
        options_(options),
        builder_(std::make_unique<DatasetBuilder>(*attributes_, *labels_, options)) {}

  std::shared_ptr<Names> attributes_, labels_;
  Extractor extractor_;
  ReadOptions options_;
  std::unique_ptr<DatasetBuilder> builder_;
};

Constrain constrain_of(const std::string& name) {
  if (name == "train") return Constrain::train;
  if (name == "decode") return Constrain::decode;
  if (name == "none") return Constrain::none;
  throw py::value_error("constrain is '" + name +
                        "'; it may be 'train', 'decode' or 'none'. A pattern is given as constraint=");
}

std::string name_of(Constrain constrain) {
  return constrain == Constrain::train ? "train" : constrain == Constrain::decode ? "decode" : "none";
}

// Sequences outside the language: an error that train() words, or left out, or repaired.
void settle_outside(const Constraint& constraint, const std::string& outside, Dataset& data, nlohmann::json& facts) {
  if (outside == "error" || outside == "raise") return;  // the layer's word (regccrf.torch) will do, too
  if (outside != "skip" && outside != "repair")
    throw Error("[train] outside is '" + outside + "'; it may be 'error', 'skip' or 'repair'");
  std::vector<std::int64_t> which;
  for (const OutsideSequence& o : find_outside(constraint, data)) which.push_back(o.sequence);
  facts["outside"] = which.size();
  if (which.empty()) return;
  if (outside == "repair") {
    facts["repaired_labels"] = repair(constraint, data, which);
    return;
  }
  data = without(data, which);
  facts["skipped"] = which.size();
  if (data.sequences() == 0) throw Error("[train] every sequence is outside the language; none is left");
}

py::dict as_dict(const Progress& progress) {
  py::dict dict;
  dict["iteration"] = progress.iteration;
  dict["objective"] = progress.objective;
  dict["gradient_norm"] = progress.gradient_norm;
  dict["seconds"] = progress.seconds;
  dict["development"] = progress.development ? py::object(py::float_(*progress.development)) : py::none();
  return dict;
}

// Asks Python: within iterations for a Ctrl-C, now and then, as other threads hold the lock; between them for
// `progress`, which stops by False. What it raises ends training.
Trained train_unlocked(const Training& training, TrainOptions options, const py::object& progress) {
  std::optional<py::error_already_set> raised;
  std::optional<Trained> trained;
  const auto goes_on = [&raised](const auto& ask) {
    const py::gil_scoped_acquire locked;
    try {
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      return ask();
    } catch (py::error_already_set& error) {
      raised.emplace(error);
      return false;
    }
  };
  constexpr std::chrono::milliseconds between{100};
  auto asked = std::chrono::steady_clock::now();
  options.stop = [&] {
    const auto now = std::chrono::steady_clock::now();
    if (now - asked < between) return false;
    asked = now;
    return !goes_on([] { return true; });
  };
  {
    const py::gil_scoped_release unlocked;
    trained = train(training, options, [&](const Progress& now) {
      return goes_on([&] {
        if (progress.is_none()) return true;
        const py::object answer = progress(as_dict(now));
        return answer.is_none() || static_cast<bool>(py::bool_(answer));
      });
    });
  }
  if (raised) throw py::error_already_set(*raised);
  return std::move(*trained);
}

constexpr const char* kLineSearches[] = {"more_thuente", "backtracking", "strong_backtracking"};  // as in the enum

const char* line_search_name(const TrainOptions& options) {
  return kLineSearches[static_cast<int>(options.line_search)];
}

void set_line_search(TrainOptions& options, const std::string& name) {
  const auto found = std::find(std::begin(kLineSearches), std::end(kLineSearches), name);
  if (found == std::end(kLineSearches)) {
    throw py::value_error("line_search is '" + name +
                          "'; it may be 'more_thuente', 'backtracking' or 'strong_backtracking'");
  }
  options.line_search = static_cast<LineSearch>(found - std::begin(kLineSearches));
}

py::tuple train_model(Data& data, Data* development, const std::optional<Constraint>& constraint,
                      const std::string& constrain, const std::string& outside, const Model* initial,
                      const TrainOptions& options, const py::object& progress) {
  Training training;
  training.constrain = constrain_of(constrain);
  training.constraint = constraint;
  if (training.constrain != Constrain::none && !constraint)
    throw py::value_error("constrain is '" + constrain + "', and there is no constraint");
  training.labels = constraint ? constraint->labels() : Labels(data.labels());
  Dataset sequences = data.take(training.labels);
  if (sequences.sequences() == 0) throw py::value_error("there is nothing to train on");
  std::optional<Dataset> held_out;
  nlohmann::json facts = nlohmann::json::object();
  if (training.constrain == Constrain::train) settle_outside(*constraint, outside, sequences, facts);
  training.facts = facts.dump();
  training.attributes = &data.attributes();
  training.weighs = data.extractor().weighs(data.attributes());
  training.data = &sequences;
  training.extractor = data.extractor().text();
  training.initial = initial;
  if (development != nullptr) {
    const Labels labels = with_others(training.labels, development->label_names());
    held_out = development->take(labels);
    training.development = &*held_out;
    const DevelopmentScore score(*held_out, labels);
    training.score_name = score.name();
    training.score = score;
  }
  TrainOptions with_transitions = options;
  with_transitions.transitions = data.extractor().transitions();
  Trained trained = train_unlocked(training, with_transitions, progress);
  py::dict best = as_dict(trained.best);
  best["iterations"] = trained.last.iteration;
  best["stopped"] = trained.stopped;
  return py::make_tuple(std::move(trained.model), best);
}

// --- tagging --------------------------------------------------------------------------------------------------------

struct TagResult {
  std::vector<std::pair<std::vector<Label>, double>> paths;
  std::vector<double> marginals, all_marginals;
  double language_mass;
  bool free;
};

class PythonTagger {
 public:
  PythonTagger(Model model, Extractor extractor, const TagOptions& options)
      : model_(std::move(model)),
        extractor_(std::move(extractor)),
        options_(options),
        tagger_(model_, extractor_, options_) {}

  // While another thread is in here, or the sentences themselves call it, scratch memory is made for the call.
  std::vector<TagResult> tag(const py::iterable& sentences) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) return tag_by(tagger_, sentences);
    Tagger own(model_, extractor_, options_);
    return tag_by(own, sentences);
  }

 private:
  std::vector<TagResult> tag_by(Tagger& tagger, const py::iterable& sentences) const {
    std::vector<TagResult> results;
    tagger.forget();  // what an error left behind
    for (py::handle sentence : sentences) {
      feed_sentence(sentence, extractor_, tagger);
      tagger.end();
      if (tagger.positions() >= 4096) decode(tagger, results);
    }
    decode(tagger, results);
    return results;
  }

  static void decode(Tagger& tagger, std::vector<TagResult>& results) {
    const py::gil_scoped_release unlocked;
    for (const Tagged& tagged : tagger.decode()) {
      TagResult result{{}, tagged.marginals, tagged.all_marginals, tagged.language_mass, tagged.free};
      for (const Path& path : tagged.paths) result.paths.emplace_back(path.labels, path.score);
      results.push_back(std::move(result));
    }
  }

  Model model_;
  Extractor extractor_;
  TagOptions options_;
  std::mutex mutex_;
  Tagger tagger_;
};

py::dict transitions_of(const Model& model) {
  py::dict result;
  const auto K = static_cast<std::size_t>(model.labels().size());
  for (std::size_t ab = 0; ab < K * K; ++ab) {
    if (model.transitions()[ab] == 0) continue;
    const auto a = static_cast<Label>(ab / K), b = static_cast<Label>(ab % K);
    result[py::make_tuple(model.labels().name(a), model.labels().name(b))] = model.transitions()[ab];
  }
  return result;
}

py::str text_of_attribute(const Model& model, std::int32_t number) {
  const std::string_view name = model.attribute(number);
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "surrogateescape"));
}

py::dict features_of(const Model& model) {
  py::dict result;
  for (std::int32_t i = 0; i < model.attributes(); ++i) {
    const py::str text = text_of_attribute(model, i);
    for (auto f = model.begin()[static_cast<std::size_t>(i)]; f < model.begin()[static_cast<std::size_t>(i) + 1]; ++f) {
      const auto at = static_cast<std::size_t>(f);
      result[py::make_tuple(text, model.labels().name(model.label()[at]))] = model.weight()[at];
    }
  }
  return result;
}

py::dict pairs_of(const Model& model) {
  py::dict result;
  const auto K = static_cast<std::int32_t>(model.labels().size());
  for (std::int32_t i = 0; model.has_pairs() && i < model.attributes(); ++i) {
    const py::str text = text_of_attribute(model, i);
    const auto place = static_cast<std::size_t>(i);
    for (auto f = model.pair_begin()[place]; f < model.pair_begin()[place + 1]; ++f) {
      const auto at = static_cast<std::size_t>(f);
      const std::int32_t pair = model.pair()[at];
      result[py::make_tuple(text, model.labels().name(pair / K), model.labels().name(pair % K))] =
          model.pair_weight()[at];
    }
  }
  return result;
}

void warn_of_missing(const std::vector<std::string>& missing) {
  std::string names;
  for (const std::string& name : missing) names += (names.empty() ? "" : ", ") + name;
  const std::string text = "the constraint's sequences with labels that the model lacks are left out: " + names;
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) != 0) throw py::error_already_set();
}

std::string repr(const Model& model) {
  return "<Model: " + std::to_string(model.labels().size()) + " labels, " + std::to_string(model.attributes()) +
         " attributes, " + std::to_string(model.weight().size()) + " features" +
         (model.constraint() ? ", constrain=" + name_of(model.constrain()) : "") + ">";
}

void bind_model(py::module_& module) {
  py::class_<Model>(
      module, "Model",
      "A trained tagger: labels, weights, and the constraint that its output obeys. Immutable; can be pickled.")
      .def_property_readonly("labels", &Model::labels, "The labels, in order.")
      .def_property_readonly("attributes", &Model::attributes, "The number of attributes.")
      .def_property_readonly("constraint", &Model::constraint, "The constraint, or None.")
      .def_property_readonly(
          "constrain", [](const Model& x) { return name_of(x.constrain()); },
          "Where the constraint is used: train, decode or none.")
      .def_property_readonly("facts", &Model::facts, "How it was trained, as JSON.")
      .def_property_readonly("extractor", &Model::extractor, "How input becomes attributes, as JSON.")
      .def_property_readonly("decoding", &Model::decoding, "The constraint of the output; without one, all sequences.")
      .def("transitions", &transitions_of, "{(label, label): weight}, without zeros.")
      .def("features", &features_of, "{(attribute, label): weight}")
      .def("pairs", &pairs_of, "{(attribute, label before, label): weight}: transitions that depend on the input.")
      .def(
          "with_constraint",
          [](const Model& x, const std::optional<Constraint>& constraint, const std::string& constrain) {
            std::vector<std::string> missing;
            auto fitted = constraint ? std::optional(fit_constraint(*constraint, x.labels(), &missing)) : std::nullopt;
            if (!missing.empty()) warn_of_missing(missing);
            return x.with_constraint(std::move(fitted), constrain_of(constrain));
          },
          py::arg("constraint"), py::arg("constrain") = "decode",
          "The same weights under another constraint (matched by the labels' names), or none.")
      .def(
          "save", [](const Model& x, const std::filesystem::path& path) { x.save(path.string()); }, py::arg("path"),
          Unlocked(), "Save it to a file. An incomplete file is never left.")
      .def_static(
          "load", [](const std::filesystem::path& path) { return Model::load(path.string()); }, py::arg("path"),
          Unlocked(), "A saved model.")
      .def(
          "to_bytes", [](const Model& x) { return py::bytes(x.to_bytes()); }, "What `save` writes.")
      .def_static(
          "from_bytes", [](const py::bytes& bytes) { return Model::from_bytes(static_cast<std::string_view>(bytes)); },
          py::arg("bytes"), "A model from what `to_bytes` gave.")
      .def_static(
          "import_crfsuite",
          [](const std::filesystem::path& path) {
            ModelParts parts = import_crfsuite(path.string());
            parts.facts = R"({"imported":"crfsuite dump"})";
            return Model(std::move(parts));
          },
          py::arg("path"), Unlocked(), "A model from what `crfsuite dump` printed into a file.")
      .def("__repr__", &repr)
      .def(py::pickle([](const Model& x) { return py::bytes(x.to_bytes()); },
                      [](const py::bytes& bytes) { return Model::from_bytes(static_cast<std::string_view>(bytes)); }));
}

}  // namespace

void bind_tagger(py::module_& module) {
  bind_model(module);
  py::class_<Extractor>(module, "Extractor", "How a sentence becomes attributes.")
      .def_static("attributes", &Extractor::attributes, "Attributes as they are given.")
      .def_static(
          "words",
          [](int word, const std::vector<int>& columns, const std::vector<std::pair<std::string, std::string>>& lists,
             const std::string& embeddings) {
            WordFeatures features;
            features.word = word;
            features.columns = columns;
            for (const auto& [name, path] : lists) features.lists.push_back(WordList::load(name, path));
            features.embeddings = embeddings;
            return Extractor::words(features);
          },
          py::arg("word") = 0, py::arg("columns") = std::vector<int>{},
          py::arg("lists") = std::vector<std::pair<std::string, std::string>>{}, py::arg("embeddings") = "",
          "Built-in features of words; lists are (name, path) pairs.")
      .def_static("from_template", &Extractor::from_template, py::arg("text"), py::arg("origin") = "template",
                  "CRF++'s feature templates.")
      .def_static("from_text", &Extractor::from_text, py::arg("text"), py::arg("embeddings") = "", Unlocked(),
                  "From what a model keeps; `embeddings`: where the file is now.")
      .def_property_readonly("text", &Extractor::text, "What the model keeps.")
      .def_property_readonly(
          "takes_attributes", [](const Extractor& x) { return x.format() == Format::crfsuite; },
          "Attributes, not rows of columns.")
      .def("__repr__", [](const Extractor& x) { return "<Extractor: " + x.summary() + ">"; });
  module.def(
      "detect_format",
      [](const std::string& path) {
        return SentenceReader(path).format() == Format::crfsuite ? "crfsuite" : "columns";
      },
      py::arg("path"), Unlocked(), "What a file's first sentence looks like: columns or crfsuite.");
  py::class_<Data>(module, "Data", "Labelled sequences, collected for training.")
      .def(py::init<Extractor, const std::string&, int>(), py::arg("extractor"), py::arg("unknown") = "",
           py::arg("label_column") = -1)
      .def("development", &Data::development, "An empty one with the same numbers, for the development set.")
      .def("add", &Data::add, py::arg("x"), py::arg("y"), "One sequence and its labels.")
      .def("read", &Data::read, py::arg("path"), py::arg("format") = "auto", Unlocked(), "A file's sequences.")
      .def_property_readonly("labels", &Data::labels, "Labels in the order in which they came.");
  py::class_<TrainOptions>(module, "TrainOptions", "As in include/regccrf/trainer.h.")
      .def(py::init<>())
      .def_property(
          "optimizer", [](const TrainOptions& x) { return x.optimizer == Optimizer::lbfgs ? "lbfgs" : "adagrad"; },
          [](TrainOptions& x, const std::string& name) {
            if (name != "lbfgs" && name != "adagrad")
              throw py::value_error("optimizer is '" + name + "'; it may be 'lbfgs' or 'adagrad'");
            x.optimizer = name == "lbfgs" ? Optimizer::lbfgs : Optimizer::adagrad;
          })
      .def_readwrite("l1", &TrainOptions::l1)
      .def_readwrite("l2", &TrainOptions::l2)
      .def_readwrite("min_count", &TrainOptions::min_count)
      .def_readwrite("min_frequency", &TrainOptions::min_frequency)
      .def_readwrite("all_features", &TrainOptions::all_features)
      .def_readwrite("all_transitions", &TrainOptions::all_transitions)
      .def_readwrite("max_iterations", &TrainOptions::max_iterations)
      .def_readwrite("tolerance", &TrainOptions::tolerance)
      .def_readwrite("max_gap", &TrainOptions::max_gap)
      .def_readwrite("period", &TrainOptions::period)
      .def_readwrite("patience", &TrainOptions::patience)
      .def_readwrite("memories", &TrainOptions::memories)
      .def_readwrite("epsilon", &TrainOptions::epsilon)
      .def_property("line_search", line_search_name, set_line_search)
      .def_readwrite("line_search_trials", &TrainOptions::line_search_trials)
      .def_readwrite("rate", &TrainOptions::rate)
      .def_readwrite("batch", &TrainOptions::batch)
      .def_readwrite("average", &TrainOptions::average)
      .def_readwrite("seed", &TrainOptions::seed)
      .def_readwrite("threads", &TrainOptions::threads)
      .def_readwrite("checkpoint", &TrainOptions::checkpoint)
      .def_readwrite("every", &TrainOptions::every)
      .def_readwrite("resume", &TrainOptions::resume);
  module.def(
      "fit_constraint",
      [](const Constraint& constraint, const Labels& labels) { return fit_constraint(constraint, labels); },
      py::arg("constraint"), py::arg("labels"), "The constraint over other labels, matched by name.");
  module.def("train_model", &train_model, py::arg("data"), py::arg("development"), py::arg("constraint"),
             py::arg("constrain"), py::arg("outside"), py::arg("initial"), py::arg("options"), py::arg("progress"),
             "(model, what happened)");
  py::class_<TagResult>(module, "TagResult", "One sentence's answer.")
      .def_readonly("paths", &TagResult::paths)
      .def_readonly("marginals", &TagResult::marginals)
      .def_readonly("all_marginals", &TagResult::all_marginals)
      .def_readonly("language_mass", &TagResult::language_mass)
      .def_readonly("free", &TagResult::free);
  py::class_<PythonTagger>(module, "Tagger", "Decodes sentences; serves one thread.")
      .def(py::init([](const Model& model, const Extractor& extractor, int k_best, bool scores, bool all_marginals,
                       bool language_mass, const std::string& no_sequence, int threads) {
             TagOptions options;
             options.k_best = k_best;
             options.scores = scores;
             options.all_marginals = all_marginals;
             options.language_mass = language_mass;
             options.threads = threads;
             options.no_sequence = no_sequence == "free"    ? NoSequence::free
                                   : no_sequence == "empty" ? NoSequence::empty
                                                            : NoSequence::error;
             return std::make_unique<PythonTagger>(model, extractor, options);
           }),
           py::arg("model"), py::arg("extractor"), py::arg("k_best") = 1, py::arg("scores") = false,
           py::arg("all_marginals") = false, py::arg("language_mass") = false, py::arg("no_sequence") = "error",
           py::arg("threads") = 0)
      .def("tag", &PythonTagger::tag, py::arg("sentences"));
}

}  // namespace regccrf::python
