// regccrf reproduce: the paper's synthetic experiments, beside the paper's numbers.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/file.h"
#include "cli/commands.h"
#include "regccrf/error.h"
#include "reproduce/figure.h"
#include "reproduce/paper.h"
#include "reproduce/synthetic.h"

namespace regccrf::cli {
namespace {

using experiments::Data;
using experiments::Outcome;
using experiments::Setting;
using Json = nlohmann::ordered_json;

struct Options {
  std::string what;
  int seeds = 1;
  std::uint64_t seed = 1;
  int threads = 0;
  Setting setting;
  bool json = false;
  std::string svg, png;
};

struct Spread {
  double mean = 0, deviation = 0;
};

Spread spread(const std::vector<double>& values) {
  Spread result;
  for (double value : values) result.mean += value / static_cast<double>(values.size());
  for (double value : values) result.deviation += (value - result.mean) * (value - result.mean);
  if (values.size() > 1) result.deviation = std::sqrt(result.deviation / static_cast<double>(values.size() - 1));
  return result;
}

// Outcomes for every data set and seed, on all threads. [data][seed]
std::vector<std::vector<Outcome>> run_all(const std::vector<Data>& data, const Options& options) {
  std::vector<std::vector<Outcome>> outcomes(data.size(), std::vector<Outcome>(options.seeds));
  const std::size_t jobs = data.size() * options.seeds;
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t job; (job = next++) < jobs;) {
      const std::size_t d = data.size() - 1 - job / options.seeds, s = job % options.seeds;  // the longest first
      outcomes[d][s] = experiments::run(data[d], options.setting, options.seed + 1'000'003 * s + d);
    }
  };
  const unsigned wanted = options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < wanted; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

template <class Value>
Spread over_seeds(const std::vector<Outcome>& outcomes, Value value) {
  std::vector<double> values;
  for (const Outcome& outcome : outcomes) values.push_back(value(outcome));
  return spread(values);
}

void head(const Options& options, double seconds) {
  std::printf("%d seed%s, %d steps of %d samples, learning rate %g (×%g every %d steps), %.1f s\n\n", options.seeds,
              options.seeds == 1 ? "" : "s", options.setting.steps, options.setting.batch,
              options.setting.learning_rate, options.setting.decay, options.setting.decay_every, seconds);
}

// --- Figure 2 -------------------------------------------------------------------------------------------------------

double closed_form(int k) { return 1 / (1 + std::pow(3.0, -k)); }  // 0.75^k / (0.75^k + 0.25^k)
double closed_form_nll(int k) {
  return -0.75 * std::log(closed_form(k)) - 0.25 * (std::log(closed_form(k)) - k * std::log(3.0));
}

int figure2(const Options& options) {
  for (const std::string& path : {options.svg, options.png}) {
    if (!path.empty()) check_writable(path);
  }
  const int longest = 20;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Data> data;
  for (int k = 1; k <= longest; ++k) data.push_back(experiments::figure2_data(k));
  const auto outcomes = run_all(data, options);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  Json rows = Json::array();
  std::vector<experiments::FigurePoint> points;
  if (!options.json) {
    std::cout << "Figure 2: language (a c)* | (b c)*, data P((ac)^k) = 0.75, P((bc)^k) = 0.25, entropy 0.562335\n"
              << std::flush;
    head(options, seconds);
    std::printf(
        "     constrained decoding                                 constrained training\n"
        "  k  P((ac)^k)  exact   paper     NLL  exact   paper      P((ac)^k)  paper     NLL     paper\n");
  }
  for (int k = 1; k <= longest; ++k) {
    const Data& d = data[k - 1];
    const auto& all = outcomes[k - 1];
    const Spread decoding_p = over_seeds(all, [](const Outcome& o) { return std::exp(o.decoding[0]); });
    const Spread training_p = over_seeds(all, [](const Outcome& o) { return std::exp(o.training[0]); });
    const Spread decoding_nll = over_seeds(all, [&](const Outcome& o) { return cross_entropy(d, o.decoding); });
    const Spread training_nll = over_seeds(all, [&](const Outcome& o) { return cross_entropy(d, o.training); });
    rows.push_back({{"k", k},
                    {"decoding_p", decoding_p.mean},
                    {"decoding_nll", decoding_nll.mean},
                    {"training_p", training_p.mean},
                    {"training_nll", training_nll.mean},
                    {"decoding_p_deviation", decoding_p.deviation},
                    {"decoding_nll_deviation", decoding_nll.deviation},
                    {"training_p_deviation", training_p.deviation},
                    {"training_nll_deviation", training_nll.deviation},
                    {"closed_form_p", closed_form(k)},
                    {"closed_form_nll", closed_form_nll(k)}});
    points.push_back({k,
                      {decoding_p.mean, decoding_p.deviation},
                      {decoding_nll.mean, decoding_nll.deviation},
                      {training_p.mean, training_p.deviation},
                      {training_nll.mean, training_nll.deviation}});
    if (options.json) continue;
    namespace paper = experiments::paper;
    std::printf(" %2d  %8.4f  %6.4f  %6.4f  %6.4f  %6.4f  %6.4f   %8.4f  %6.4f   %7.5f  %7.5f\n", k, decoding_p.mean,
                closed_form(k), paper::kDecodingP[k - 1], decoding_nll.mean, closed_form_nll(k),
                paper::kDecodingNll[k - 1], training_p.mean, paper::kTrainingP[k - 1], training_nll.mean,
                paper::kTrainingNll[k - 1]);
  }
  if (!options.svg.empty()) write_file(options.svg, experiments::figure2_svg(points, options.seeds));
  if (!options.png.empty()) experiments::write_png(options.png, experiments::figure2_svg(points, options.seeds));
  if (options.json)
    std::cout << Json{{"experiment", "figure2"},
                      {"seeds", options.seeds},
                      {"learning_rate", options.setting.learning_rate},
                      {"seconds", seconds},
                      {"rows", rows}}
                     .dump()
              << "\n";
  return 0;
}

// --- Table 1 --------------------------------------------------------------------------------------------------------

int table1(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Data> data = {experiments::table1_data()};
  const auto outcomes = run_all(data, options)[0];
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const char* names[] = {"acd", "bcd", "bce"};
  Json rows = Json::array();
  if (!options.json) {
    std::cout << "Table 1: language a c d | b c d | b c e\n" << std::flush;
    head(options, seconds);
    std::printf("  y    data   decoding  paper   training  paper\n");
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const Spread decoding = over_seeds(outcomes, [i](const Outcome& o) { return std::exp(o.decoding[i]); });
    const Spread training = over_seeds(outcomes, [i](const Outcome& o) { return std::exp(o.training[i]); });
    rows.push_back({{"y", names[i]},
                    {"data", data[0].probabilities[i]},
                    {"decoding", decoding.mean},
                    {"training", training.mean},
                    {"decoding_deviation", decoding.deviation},
                    {"training_deviation", training.deviation}});
    if (options.json) continue;
    std::printf("  %s  %5.2f  %8.4f  %5.2f   %8.4f  %5.2f\n", names[i], data[0].probabilities[i], decoding.mean,
                experiments::paper::kTable1Decoding[i], training.mean, experiments::paper::kTable1Training[i]);
  }
  if (options.json)
    std::cout << Json{{"experiment", "table1"},
                      {"seeds", options.seeds},
                      {"learning_rate", options.setting.learning_rate},
                      {"seconds", seconds},
                      {"rows", rows}}
                     .dump()
              << "\n";
  return 0;
}

}  // namespace

Run add_reproduce(CLI::App& app) {
  CLI::App* command = app.add_subcommand("reproduce", "Reproduce the paper's synthetic experiments.");
  command->footer(
      "Trains a model with the constraint and one without it, on samples of a known distribution. Compares "
      "constrained\n"
      "training, constrained decoding and the paper's numbers.\n\n"
      "  regccrf reproduce figure2 --seeds 30 --svg figure2.svg\n"
      "  regccrf reproduce table1 --learning-rate 1.0      (the rate that the paper prints)");
  auto options = std::make_shared<Options>();
  command->add_option("experiment", options->what, "figure2 or table1")
      ->required()
      ->check(CLI::IsMember({"figure2", "table1"}));
  command->add_option("--seeds", options->seeds, "runs to average over")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "the first seed")->capture_default_str();
  command->add_option("--threads", options->threads, "threads; 0 for all cores")
      ->check(CLI::Range(0, 1'024))
      ->capture_default_str();
  command
      ->add_option("--learning-rate", options->setting.learning_rate, "at the beginning; falls by 10% every 100 steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--steps", options->setting.steps, "steps of gradient descent")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, "print one JSON object with `rows`");
  command->add_option("--svg", options->svg, "figure2: draw the figure")->type_name("FILE");
  command->add_option("--png", options->png, "figure2: the same as a PNG (needs rsvg-convert)")->type_name("FILE");
  return [options] {
    if (options->what == "table1" && !(options->svg + options->png).empty())
      throw Error("table1 has no figure; --svg and --png go with figure2");
    return options->what == "figure2" ? figure2(*options) : table1(*options);
  };
}

}  // namespace regccrf::cli
