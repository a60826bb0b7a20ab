// regccrf inspect: what a model holds.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "cli/commands.h"
#include "regccrf/error.h"
#include "regccrf/extract.h"
#include "regccrf/model.h"

namespace regccrf::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string model;
  int top = 5;
  bool json = false, dump = false;
};

struct Feature {
  double weight;
  std::string name;
};

const char* name_of(Constrain constrain) {
  return constrain == Constrain::train ? "train" : constrain == Constrain::decode ? "decode" : "none";
}

// Attributes may hold any bytes.
std::string shown(std::string_view name) {
  return is_utf8(name)
             ? std::string(name)
             : nlohmann::json(std::string(name)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string spell(double weight) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", weight);
  return text;
}

void keep_heaviest(std::vector<Feature>& features, std::size_t many) {
  const auto heavier = [](const Feature& x, const Feature& y) {
    return std::abs(x.weight) != std::abs(y.weight) ? std::abs(x.weight) > std::abs(y.weight) : x.name < y.name;
  };
  const std::size_t kept = std::min(many, features.size());
  std::partial_sort(features.begin(), features.begin() + static_cast<std::ptrdiff_t>(kept), features.end(), heavier);
  features.resize(kept);
}

// [K] the heaviest features of each label.
std::vector<std::vector<Feature>> heaviest_features(const Model& model, std::size_t many) {
  std::vector<std::vector<std::pair<double, std::int32_t>>> all(static_cast<std::size_t>(model.labels().size()));
  for (std::int32_t i = 0; i < model.attributes(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    for (std::int64_t f = model.begin()[at]; f < model.begin()[at + 1]; ++f) {
      const double weight = model.weight()[static_cast<std::size_t>(f)];
      if (weight != 0)
        all[static_cast<std::size_t>(model.label()[static_cast<std::size_t>(f)])].emplace_back(-std::abs(weight), i);
    }
  }
  std::vector<std::vector<Feature>> result(all.size());
  for (std::size_t a = 0; a < all.size(); ++a) {
    const std::size_t kept = std::min(many, all[a].size());
    std::partial_sort(all[a].begin(), all[a].begin() + static_cast<std::ptrdiff_t>(kept), all[a].end());
    for (std::size_t n = 0; n < kept; ++n) {
      const auto i = static_cast<std::size_t>(all[a][n].second);
      const auto labels = model.label().subspan(static_cast<std::size_t>(model.begin()[i]),
                                                static_cast<std::size_t>(model.begin()[i + 1] - model.begin()[i]));
      const auto at = std::lower_bound(labels.begin(), labels.end(), static_cast<Label>(a)) - labels.begin();
      result[a].push_back(
          {model.weight()[static_cast<std::size_t>(model.begin()[i] + at)], shown(model.attribute(all[a][n].second))});
    }
  }
  return result;
}

// body(attribute, label before, label, weight)
template <class Body>
void each_pair(const Model& model, const Body& body) {
  const std::int32_t K = model.labels().size();
  for (std::int32_t i = 0; model.has_pairs() && i < model.attributes(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    for (std::int64_t f = model.pair_begin()[at]; f < model.pair_begin()[at + 1]; ++f) {
      const std::int32_t pair = model.pair()[static_cast<std::size_t>(f)];
      body(i, pair / K, pair % K, model.pair_weight()[static_cast<std::size_t>(f)]);
    }
  }
}

std::vector<Feature> heaviest_transitions(const Model& model, std::size_t many) {
  std::vector<Feature> all;
  const Label K = model.labels().size();
  for (Label a = 0; a < K; ++a) {
    for (Label b = 0; b < K; ++b) {
      const double weight =
          model.transitions()[static_cast<std::size_t>(a) * static_cast<std::size_t>(K) + static_cast<std::size_t>(b)];
      if (weight != 0) all.push_back({weight, model.labels().name(a) + " → " + model.labels().name(b)});
    }
  }
  keep_heaviest(all, many);
  return all;
}

std::vector<Feature> heaviest_pairs(const Model& model, std::size_t many) {
  std::vector<Feature> all;
  each_pair(model, [&](std::int32_t attribute, Label a, Label b, double weight) {
    all.push_back(
        {weight, shown(model.attribute(attribute)) + "  " + model.labels().name(a) + " → " + model.labels().name(b)});
  });
  keep_heaviest(all, many);
  return all;
}

// A damaged text is shown as it is: inspecting must not fail where tagging would.
std::string extractor_summary(const Model& model) {
  try {
    return Extractor::from_text(model.extractor()).summary();
  } catch (const Error& error) {
    return std::string("(") + error.what() + ")";
  }
}

Json list(const std::vector<Feature>& features) {
  Json json = Json::array();
  for (const Feature& f : features) json.push_back({{"name", f.name}, {"weight", f.weight}});
  return json;
}

void print_json(const Model& model, std::size_t top) {
  Json json = {{"labels", model.labels().names()},
               {"attributes", model.attributes()},
               {"features", model.weight().size()},
               {"extractor", extractor_summary(model)},
               {"constrain", name_of(model.constrain())}};
  if (model.constraint()) {
    const Size& size = model.constraint()->size();
    json["constraint"] = {{"pattern", model.constraint()->text()},
                          {"states", size.states},
                          {"arcs", size.arcs},
                          {"rules", model.constraint()->rules()},
                          {"method", model.constraint()->method()}};
  }
  json["facts"] = Json::parse(model.facts(), nullptr, false);
  if (json["facts"].is_discarded()) json["facts"] = model.facts();
  if (model.has_pairs()) json["pairs"] = model.pair_weight().size();
  json["heaviest_transitions"] = list(heaviest_transitions(model, top));
  if (model.has_pairs()) json["heaviest_pairs"] = list(heaviest_pairs(model, top));
  const auto features = heaviest_features(model, top);
  for (Label a = 0; a < model.labels().size(); ++a)
    json["heaviest_features"][model.labels().name(a)] = list(features[static_cast<std::size_t>(a)]);
  std::cout << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
}

void print_features(const std::string& title, const std::vector<Feature>& features) {
  std::cout << title << "\n";
  if (features.empty()) std::cout << "  (none)\n";
  for (const Feature& f : features) {
    char weight[32];
    std::snprintf(weight, sizeof weight, "%+10.4f", f.weight);
    std::cout << "  " << weight << "  " << f.name << "\n";
  }
}

void print_constraint(const Model& model) {
  if (!model.constraint()) {
    std::cout << "constraint   none: every label sequence is legal\n";
    return;
  }
  const Size& size = model.constraint()->size();
  const char* when = model.constrain() == Constrain::train    ? "in training and decoding"
                     : model.constrain() == Constrain::decode ? "in decoding"
                                                              : "kept, but not used";
  std::cout << "constraint   " << when << "; " << size.states << " states, " << size.arcs << " arcs";
  if (model.constraint()->rules() > 0) std::cout << ", and " << model.constraint()->rules() << " rules beside them";
  std::cout << "\n";
  std::string_view text = model.constraint()->text();
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) std::cout << "               " << text.substr(0, end) << "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void print_facts(const Model& model) {
  const Json facts = Json::parse(model.facts(), nullptr, false);
  if (!facts.is_object() || facts.empty()) return;
  std::size_t width = 0;
  for (const auto& [key, value] : facts.items()) width = std::max(width, key.size());
  std::cout << "\n";
  for (const auto& [key, value] : facts.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    std::cout << key << std::string(width + 2 - key.size(), ' ') << text << "\n";
  }
}

void print_summary(const Model& model, std::size_t top) {
  std::cout << "labels       " << model.labels().size() << "   (";
  for (Label a = 0; a < model.labels().size(); ++a) std::cout << (a ? " " : "") << model.labels().name(a);
  std::cout << ")\nattributes   " << model.attributes() << "   (" << extractor_summary(model) << ")\n"
            << "features     " << model.weight().size() << "\n";
  if (model.has_pairs()) std::cout << "pairs        " << model.pair_weight().size() << "\n";
  print_constraint(model);
  print_facts(model);
  if (top == 0) return;
  std::cout << "\n";
  print_features("heaviest transitions", heaviest_transitions(model, top));
  if (model.has_pairs()) print_features("heaviest transitions that depend on the input", heaviest_pairs(model, top));
  const auto features = heaviest_features(model, top);
  for (Label a = 0; a < model.labels().size(); ++a)
    print_features(model.labels().name(a), features[static_cast<std::size_t>(a)]);
}

// One weight a line, fields separated by tabs: everything that scores depend on.
void print_dump(const Model& model) {
  const Label K = model.labels().size();
  for (Label a = 0; a < K; ++a) std::cout << "label\t" << model.labels().name(a) << "\n";
  for (Label a = 0; a < K; ++a) {
    for (Label b = 0; b < K; ++b) {
      const double weight =
          model.transitions()[static_cast<std::size_t>(a) * static_cast<std::size_t>(K) + static_cast<std::size_t>(b)];
      if (weight != 0)
        std::cout << "transition\t" << model.labels().name(a) << "\t" << model.labels().name(b) << "\t" << spell(weight)
                  << "\n";
    }
  }
  for (std::int32_t i = 0; i < model.attributes(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    for (std::int64_t f = model.begin()[at]; f < model.begin()[at + 1]; ++f) {
      std::cout << "feature\t" << model.attribute(i) << "\t"
                << model.labels().name(model.label()[static_cast<std::size_t>(f)]) << "\t"
                << spell(model.weight()[static_cast<std::size_t>(f)]) << "\n";
    }
  }
  each_pair(model, [&](std::int32_t attribute, Label a, Label b, double weight) {
    std::cout << "pair\t" << model.attribute(attribute) << "\t" << model.labels().name(a) << "\t"
              << model.labels().name(b) << "\t" << spell(weight) << "\n";
  });
}

int inspect_command(const Options& options) {
  const Model model = Model::load(options.model);
  if (options.dump) {
    print_dump(model);
  } else if (options.json) {
    print_json(model, static_cast<std::size_t>(options.top));
  } else {
    print_summary(model, static_cast<std::size_t>(options.top));
  }
  return 0;
}

}  // namespace

Run add_inspect(CLI::App& app) {
  CLI::App* command = app.add_subcommand("inspect", "Show what is in a model.");
  command->footer(
      "Labels, the constraint, how the model was trained, and the heaviest features of each label. Loading checks the "
      "whole file, so\n"
      "this also shows whether a model is damaged.\n"
      "\n"
      "  regccrf inspect ner.model\n"
      "  regccrf inspect ner.model --top 0                      without features\n"
      "  regccrf inspect ner.model --dump | grep suffix= | sort -t$'\\t' -gk4    every weight: kind, names, weight");
  auto options = std::make_shared<Options>();
  command->add_option("model", options->model, "the model")->required()->type_name("MODEL");
  command->add_option("--top", options->top, "how many features to show for each label")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, "the same as one JSON object");
  command->add_flag("--dump", options->dump,
                    "every label, transition, feature and pair with its weight, one on each line, separated by tabs");
  return [options] { return inspect_command(*options); };
}

}  // namespace regccrf::cli
