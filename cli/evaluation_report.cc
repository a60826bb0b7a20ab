#include "cli/evaluation_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace regccrf::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string format(const char* pattern, auto... values) {
  char buffer[160];
  std::snprintf(buffer, sizeof buffer, pattern, values...);
  return buffer;
}

std::size_t width(std::string_view text) {  // in code points
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t to) {
  return text + std::string(to - std::min(to, width(text)), ' ');
}
std::string right(const std::string& text, std::size_t to) {
  return std::string(to - std::min(to, width(text)), ' ') + text;
}

// Cells as columns, each as wide as its widest; the first `left` columns begin at the left.
std::string table(const std::vector<std::vector<std::string>>& rows, std::size_t left) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += (i ? "  " : "") + (i < left ? padded(row[i], widths[i]) : right(row[i], widths[i]));
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string with_interval(double value, const Interval& interval) {
  return format("%.2f [%.2f, %.2f]", value, interval.low, interval.high);
}

struct Named {
  Measure measure;
  const char* key;  // in JSON
};
constexpr Named kMeasures[] = {
    {Measure::accuracy, "accuracy"},    {Measure::precision, "precision"},
    {Measure::recall, "recall"},        {Measure::f1, "f1"},
    {Measure::exact_accuracy, "exact"}, {Measure::violation_rate, "violation_rate"},
};
constexpr Measure kCompared[] = {Measure::accuracy, Measure::f1, Measure::exact_accuracy};

const Named& named(Measure measure) {
  return *std::find_if(std::begin(kMeasures), std::end(kMeasures),
                       [&](const Named& n) { return n.measure == measure; });
}

// System i against the first one. [kCompared]
std::vector<Comparison> with_first(const Report& report, std::size_t i) {
  return compare(report.systems[0].evaluation, report.systems[i].evaluation, kCompared, report.resampling);
}

std::string methods(const Report& report, bool tests) {
  return format("[…]: 95%% intervals from %d resamples of the sequences (bootstrap)", report.resampling.samples) +
         (tests ? format("; p: approximate randomisation, %d times\n", report.resampling.samples) : "\n");
}

std::string of(std::int64_t part, std::int64_t whole, const char* what) {
  return format("%lld of %lld %s", static_cast<long long>(part), static_cast<long long>(whole), what);
}

std::string sizes(const Counts& total) {
  return format("%lld sequences, %lld tokens, %lld gold spans\n", static_cast<long long>(total.sequences),
                static_cast<long long>(total.tokens), static_cast<long long>(total.spans.gold));
}

std::string spans_are(SpanScheme scheme) {
  if (scheme == SpanScheme::runs) return "spans are runs of the same label\n";
  if (scheme == SpanScheme::bioes) return "spans are BIOES: S-X is one, E-X ends one\n";
  return scheme == SpanScheme::tokens ? "every token is a span\n" : "";
}

// --- one system -----------------------------------------------------------------------------------------------------

std::string of_one(const Report& report) {
  const Evaluation& e = report.systems[0].evaluation;
  const Counts& total = e.total;
  const std::vector<Counts> resamples = bootstrap(e.sequences, report.resampling);
  const auto cell = [&](Measure m) { return with_interval(value(total, m), interval(resamples, m)); };
  std::vector<std::vector<std::string>> rows = {
      {"token accuracy", cell(Measure::accuracy), of(total.correct_tokens, total.tokens, "tokens")},
      {"exact sequences", cell(Measure::exact_accuracy), of(total.exact, total.sequences, "sequences")},
      {"span precision", cell(Measure::precision), of(total.spans.correct, total.spans.predicted, "predicted spans")},
      {"span recall", cell(Measure::recall), of(total.spans.correct, total.spans.gold, "gold spans")},
      {"span F1", cell(Measure::f1), ""}};
  if (report.options.constraint) {
    rows.push_back({"violations", cell(Measure::violation_rate),
                    of(total.violations, total.sequences, "sequences are outside the language")});
  }
  std::string text = table(rows, 3);
  if (!e.types.empty()) {
    rows = {{"type", "precision", "recall", "F1", "gold", "predicted", "correct"}};
    for (const auto& [type, counts] : e.types) {
      rows.push_back({type.empty() ? "(none)" : type, format("%.2f", counts.precision()),
                      format("%.2f", counts.recall()), format("%.2f", counts.f1()), std::to_string(counts.gold),
                      std::to_string(counts.predicted), std::to_string(counts.correct)});
    }
    text += "\n" + table(rows, 1);
  }
  return text + "\n" + spans_are(report.options.scheme) + methods(report, false);
}

// --- several --------------------------------------------------------------------------------------------------------

std::string of_several(const Report& report) {
  std::vector<std::vector<std::string>> rows = {{"system", "token accuracy", "F1", "exact sequences"}};
  if (report.options.constraint) rows[0].push_back("violations");
  for (const System& system : report.systems) {
    const Evaluation& e = system.evaluation;
    const std::vector<Counts> resamples = bootstrap(e.sequences, report.resampling);
    std::vector<std::string> row = {system.name};
    for (Measure m : kCompared) row.push_back(with_interval(value(e.total, m), interval(resamples, m)));
    if (report.options.constraint)
      row.push_back(format("%lld (%.2f%%)", static_cast<long long>(e.total.violations), e.total.violation_rate()));
    rows.push_back(row);
  }
  std::string text = table(rows, 1);
  rows = {{"against " + report.systems[0].name, "token accuracy", "F1", "exact sequences"}};
  for (std::size_t i = 1; i < report.systems.size(); ++i) {
    std::vector<std::string> row = {report.systems[i].name};
    for (const Comparison& c : with_first(report, i)) {
      row.push_back(format("%+.2f [%+.2f, %+.2f] p=%.3f", c.difference, c.interval.low, c.interval.high, c.p));
    }
    rows.push_back(row);
  }
  return text + "\n" + table(rows, 1) + "\n" + sizes(report.systems[0].evaluation.total) +
         spans_are(report.options.scheme) + methods(report, true);
}

Json as_json(const Interval& interval) { return Json::array({interval.low, interval.high}); }

Json as_json(const SpanCounts& counts) {
  return {{"precision", counts.precision()}, {"recall", counts.recall()}, {"f1", counts.f1()}, {"gold", counts.gold},
          {"predicted", counts.predicted},   {"correct", counts.correct}};
}

Json as_json(const System& system, const Report& report) {
  const Counts& total = system.evaluation.total;
  const std::vector<Counts> resamples = bootstrap(system.evaluation.sequences, report.resampling);
  Json out = {{"name", system.name},
              {"sequences", total.sequences},
              {"tokens", total.tokens},
              {"correct_tokens", total.correct_tokens},
              {"exact_sequences", total.exact}};
  if (report.options.constraint) out["violations"] = total.violations;
  out["spans"] = {{"gold", total.spans.gold}, {"predicted", total.spans.predicted}, {"correct", total.spans.correct}};
  Json intervals;
  for (const Named& m : kMeasures) {
    if (m.measure == Measure::violation_rate && !report.options.constraint) continue;
    out[m.key] = value(total, m.measure);
    intervals[m.key] = as_json(interval(resamples, m.measure));
  }
  out["intervals"] = intervals;
  out["types"] = Json::object();
  for (const auto& [type, counts] : system.evaluation.types) out["types"][type] = as_json(counts);
  return out;
}

// --- sequences side by side -----------------------------------------------------------------------------------------

// How much a sequence tells about the systems: 0 where they agree.
int interest(const Report& report, std::size_t sequence) {
  bool differ = false, one_is_right = false, one_is_illegal = false;
  for (const System& system : report.systems) {
    differ = differ || system.predicted[sequence] != report.systems[0].predicted[sequence];
    one_is_right = one_is_right || system.evaluation.sequences[sequence].exact > 0;
    one_is_illegal = one_is_illegal || system.evaluation.sequences[sequence].violations > 0;
  }
  return !differ ? 0 : 1 + (one_is_right ? 2 : 0) + (one_is_illegal ? 1 : 0);
}

std::string side_by_side(const Report& report, std::size_t sequence) {
  std::vector<std::vector<std::string>> rows = {{"", "gold"}};
  for (const System& system : report.systems) rows[0].push_back(system.name);
  for (std::size_t t = 0; t < report.gold[sequence].size(); ++t) {
    const std::string& gold = report.gold[sequence][t];
    std::vector<std::string> row = {report.words[sequence][t], gold};
    for (const System& system : report.systems)
      row.push_back(system.predicted[sequence][t] + (system.predicted[sequence][t] == gold ? "" : "  ✗"));
    rows.push_back(row);
  }
  if (report.options.constraint) {
    rows.push_back({"in the language?", ""});
    for (const System& system : report.systems)
      rows.back().push_back(system.evaluation.sequences[sequence].violations ? "no" : "yes");
  }
  return format("sequence %zu\n", sequence + 1) + table(rows, rows[0].size());
}

}  // namespace

std::string text_report(const Report& report) {
  return report.systems.size() == 1 ? of_one(report) : of_several(report);
}

std::string json_report(const Report& report) {
  const char* schemes[] = {"prefixed", "bioes", "tokens", "runs"};
  Json out = {{"scheme", schemes[static_cast<int>(report.options.scheme)]},
              {"resamples", report.resampling.samples},
              {"seed", report.resampling.seed},
              {"systems", Json::array()},
              {"comparisons", Json::array()}};
  for (const System& system : report.systems) out["systems"].push_back(as_json(system, report));
  for (std::size_t i = 1; i < report.systems.size(); ++i) {
    Json row = {{"first", report.systems[0].name}, {"second", report.systems[i].name}};
    const std::vector<Comparison> comparisons = with_first(report, i);
    for (std::size_t m = 0; m < comparisons.size(); ++m) {
      const Comparison& c = comparisons[m];
      row[named(kCompared[m]).key] = {{"difference", c.difference}, {"interval", as_json(c.interval)}, {"p", c.p}};
    }
    out["comparisons"].push_back(row);
  }
  return out.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string differences(const Report& report, std::size_t many) {
  std::string text;
  for (int wanted = 4; wanted > 0; --wanted) {
    for (std::size_t i = 0; i < report.gold.size() && many > 0; ++i) {
      if (interest(report, i) != wanted) continue;
      text += "\n" + side_by_side(report, i);
      --many;
    }
  }
  return text.empty() ? "\nthe systems give the same answers\n" : text;
}

}  // namespace regccrf::cli
