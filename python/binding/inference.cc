// Inference on raw memory: addresses and shapes come from the Python side, which keeps the arrays alive during the
// call. Every function releases the interpreter while it works. regccrf/__init__.py and regccrf/torch.py are the users.
#include "regccrf/inference.h"

#include <pybind11/stl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.h"
#include "regccrf/loss.h"

namespace py = pybind11;

namespace regccrf::python {
namespace {

using Address = std::uintptr_t;  // 0: not there

template <class T>
std::span<T> memory(Address address, std::size_t size) {
  return address ? std::span<T>(reinterpret_cast<T*>(address), size) : std::span<T>();
}

// A ragged batch of scores, as addresses.
struct Batch {
  bool is_double;
  int labels;
  std::size_t rows;
  Address emissions, transitions, start, end, mask;
  std::vector<std::int64_t> first, length;
  std::int64_t stride;

  std::size_t K() const { return static_cast<std::size_t>(labels); }

  template <class Real>
  Scores<Real> scores() const {
    return Scores(memory<const Real>(emissions, rows * K()), memory<const Real>(transitions, K() * K()), layout())
        .with_start_end(memory<const Real>(start, K()), memory<const Real>(end, K()));
  }

  Layout layout() const {
    const auto T = static_cast<std::int64_t>(rows) / stride;
    const Layout layout =
        stride == 1 ? Layout::ragged(first, length) : Layout::time_first(T, stride).with_lengths(length);
    return layout.with_mask(memory<const std::uint8_t>(mask, rows));
  }
};

// One constraint for all sequences, or `which` of several for each.
struct Choice {
  std::vector<Constraint> all;
  std::vector<std::int32_t> which;
  Constraints view() const { return Constraints(all, which); }
};

// Addresses of the gradients that are wanted, and of the sequences' weights.
struct Wanted {
  Address emissions = 0, transitions = 0, start = 0, end = 0, weights = 0;

  template <class Real>
  Gradients<Real> gradients(const Batch& batch) const {
    const std::size_t K = batch.K();
    return {memory<Real>(emissions, batch.rows * K), memory<Real>(transitions, K * K), memory<Real>(start, K),
            memory<Real>(end, K), memory<const Real>(weights, batch.first.size())};
  }
};

// Scratch memory and threads wait here between calls. A forked child starts afresh: its parent's threads are not there.
class Workspaces {
 public:
  std::unique_ptr<Workspace> take() {
    const std::lock_guard lock(mutex_);
    if (owner_ != getpid()) {
      for (auto& workspace : idle_) (void)workspace.release();
      idle_.clear();
      owner_ = getpid();
    }
    if (idle_.empty()) return std::make_unique<Workspace>();
    auto workspace = std::move(idle_.back());
    idle_.pop_back();
    return workspace;
  }
  void give(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_;
  pid_t owner_ = getpid();
};

// Never destroyed: worker threads must not be joined while the interpreter is going down.
Workspaces& workspaces() {
  static auto* all = new Workspaces;
  return *all;
}

struct Settings {
  int threads = 1;
  bool allow = false;             // what is impossible, or gold that is outside
  std::optional<double> max_gap;  // of sums under rules that are kept beside a base
  Uncertified uncertified = Uncertified::error;
  std::optional<std::int64_t> max_cells;  // for each position of such a sum
  Address gaps = 0;                       // [B] doubles, where a call that sums puts its gaps
};

// call(scores, options) in the batch's precision, with a workspace and without the interpreter.
template <class Call>
auto run(const Batch& batch, const Settings& settings, const Call& call) {
  const py::gil_scoped_release unlocked;
  std::unique_ptr<Workspace> workspace = workspaces().take();
  struct Return {
    std::unique_ptr<Workspace>& workspace;
    ~Return() { workspaces().give(std::move(workspace)); }
  } give_back{workspace};
  LossOptions options;
  options.threads = settings.threads;
  options.workspace = workspace.get();
  options.impossible = settings.allow ? Impossible::allow : Impossible::error;
  options.outside = settings.allow ? OutsideGold::skip : OutsideGold::error;
  options.max_gap = settings.max_gap;
  options.uncertified = settings.uncertified;
  if (settings.max_cells) options.rules.cells_a_position = *settings.max_cells;
  options.gaps = memory<double>(settings.gaps, batch.first.size());
  return batch.is_double ? call(batch.scores<double>(), options) : call(batch.scores<float>(), options);
}

py::list lists(const std::vector<Path>& paths) {
  py::list all(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) all[i] = py::make_tuple(py::cast(paths[i].labels), paths[i].score);
  return all;
}

py::list lists(const std::vector<std::vector<Path>>& paths) {
  py::list all(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) all[i] = lists(paths[i]);
  return all;
}

using LossAnswer = std::pair<std::vector<double>, std::vector<bool>>;  // values, and which were left out

LossAnswer answer(const Loss& loss) { return {loss.values, {loss.skipped.begin(), loss.skipped.end()}}; }

LossAnswer bound_nll(const Choice& choice, const Batch& batch, Address gold, const Wanted& wanted,
                     const Settings& settings) {
  return answer(run(batch, settings, [&]<class Real>(const Scores<Real>& scores, const LossOptions& options) {
    return nll(choice.view(), scores, memory<const Label>(gold, batch.rows), wanted.gradients<Real>(batch), options);
  }));
}

LossAnswer bound_partial_nll(const Choice& choice, const Batch& batch, Address allowed, const Wanted& wanted,
                             const Settings& settings) {
  return answer(run(batch, settings, [&]<class Real>(const Scores<Real>& scores, const LossOptions& options) {
    return partial_nll(choice.view(), scores, memory<const std::uint8_t>(allowed, batch.rows * batch.K()),
                       wanted.gradients<Real>(batch), options);
  }));
}

// A span: its sequence, its first position, its labels, and those that may not stand before and after it.
using SpanTuple = std::tuple<std::int64_t, std::int64_t, std::vector<Label>, std::vector<Label>, std::vector<Label>>;

std::vector<double> bound_span_marginals(const Choice& choice, const Batch& batch, const std::vector<SpanTuple>& tuples,
                                         const Settings& settings) {
  std::vector<Span> spans;
  for (const auto& [sequence, begin, labels, not_before, not_after] : tuples)
    spans.push_back({sequence, begin, labels, not_before, not_after});
  return run(batch, settings, [&]<class Real>(const Scores<Real>& scores, const Options& options) {
    return span_marginals<Real>(choice.view(), scores, spans, options);
  });
}

// `skipped`: none, or [B]; `mask`: [T, B], or [B, T] with batch_first.
double bound_divisor(Reduction reduction, std::size_t size, std::size_t length, bool batch_first,
                     const std::vector<std::uint8_t>& skipped, Address mask) {
  std::vector<std::int64_t> lengths(size, static_cast<std::int64_t>(length));
  const auto present = memory<const std::uint8_t>(mask, size * length);
  if (!present.empty()) std::fill(lengths.begin(), lengths.end(), 0);
  for (std::size_t row = 0; row < present.size(); ++row)
    lengths[batch_first ? row / length : row % size] += present[row] != 0;
  return divisor(reduction, skipped, lengths);
}

void bind_arguments(py::module_& module) {
  py::class_<Batch>(module, "Batch")
      .def(py::init([](bool is_double, int labels, std::size_t rows, Address emissions, Address transitions,
                       Address start, Address end, std::vector<std::int64_t> first, std::vector<std::int64_t> length,
                       std::int64_t stride, Address mask) {
             return Batch{is_double,         labels, rows, emissions, transitions, start, end, mask, std::move(first),
                          std::move(length), stride};
           }),
           py::arg("is_double"), py::arg("labels"), py::arg("rows"), py::arg("emissions"), py::arg("transitions"),
           py::arg("start"), py::arg("end"), py::arg("first"), py::arg("length"), py::arg("stride"), py::arg("mask"));
  py::class_<Choice>(module, "Choice")
      .def(py::init([](std::vector<Constraint> all, std::vector<std::int32_t> which) {
             return Choice{std::move(all), std::move(which)};
           }),
           py::arg("all"), py::arg("which") = std::vector<std::int32_t>());
  py::class_<Wanted>(module, "Wanted")
      .def(py::init([](Address emissions, Address transitions, Address start, Address end, Address weights) {
             return Wanted{emissions, transitions, start, end, weights};
           }),
           py::arg("emissions") = 0, py::arg("transitions") = 0, py::arg("start") = 0, py::arg("end") = 0,
           py::arg("weights") = 0);
  py::enum_<Uncertified>(module, "Uncertified")
      .value("error", Uncertified::error)
      .value("bound", Uncertified::bound)
      .value("relax", Uncertified::relax);
  py::class_<Settings>(module, "Settings")
      .def(py::init([](int threads, bool allow, std::optional<double> max_gap, Uncertified uncertified,
                       std::optional<std::int64_t> max_cells,
                       Address gaps) { return Settings{threads, allow, max_gap, uncertified, max_cells, gaps}; }),
           py::arg("threads") = 1, py::arg("allow") = false, py::arg("max_gap") = std::nullopt,
           py::arg("uncertified") = Uncertified::error, py::arg("max_cells") = std::nullopt, py::arg("gaps") = 0);
}

}  // namespace

void bind_inference(py::module_& module) {
  bind_arguments(module);
  module.def("log_z", [](const Choice& choice, const Batch& batch, const Settings& settings) {
    return run(batch, settings,
               [&](const auto& scores, const Options& options) { return log_z(choice.view(), scores, options); });
  });
  module.def("viterbi", [](const Choice& choice, const Batch& batch, const Settings& settings) {
    return lists(run(batch, settings, [&](const auto& scores, const Options& options) {
      return viterbi(choice.view(), scores, options);
    }));
  });
  module.def("posterior_decode", [](const Choice& choice, const Batch& batch, const Settings& settings) {
    return lists(run(batch, settings, [&](const auto& scores, const Options& options) {
      return posterior_decode(choice.view(), scores, options);
    }));
  });
  module.def(
      "k_best",
      [](const Choice& choice, const Batch& batch, int k, const Settings& settings) {
        return lists(run(batch, settings, [&](const auto& scores, const Options& options) {
          return k_best(choice.view(), scores, k, options);
        }));
      },
      py::arg("choice"), py::arg("batch"), py::arg("k"), py::arg("settings"));
  module.def(
      "sample",
      [](const Choice& choice, const Batch& batch, int count, std::uint64_t seed, double temperature,
         const std::vector<std::uint64_t>& ids, const Settings& settings) {
        const Sampling sampling{count, seed, temperature, ids};
        return lists(run(batch, settings, [&](const auto& scores, const Options& options) {
          return sample(choice.view(), scores, sampling, options);
        }));
      },
      py::arg("choice"), py::arg("batch"), py::arg("count"), py::arg("seed"), py::arg("temperature"), py::arg("ids"),
      py::arg("settings"));
  module.def("label_marginals", [](const Choice& choice, const Batch& batch, Address out, const Settings& settings) {
    run(batch, settings, [&]<class Real>(const Scores<Real>& scores, const Options& options) {
      label_marginals(choice.view(), scores, memory<Real>(out, batch.rows * batch.K()), options);
    });
  });
  module.def("bigram_marginals", [](const Choice& choice, const Batch& batch, Address out, const Settings& settings) {
    run(batch, settings, [&]<class Real>(const Scores<Real>& scores, const Options& options) {
      bigram_marginals(choice.view(), scores, memory<Real>(out, batch.rows * batch.K() * batch.K()), options);
    });
  });
  module.def("span_marginals", &bound_span_marginals);
  module.def("entropy", [](const Choice& choice, const Batch& batch, const Wanted& wanted, const Settings& settings) {
    return run(batch, settings, [&]<class Real>(const Scores<Real>& scores, const Options& options) {
      return entropy(choice.view(), scores, wanted.gradients<Real>(batch), options).values;
    });
  });
  module.def("language_mass",
             [](const Choice& choice, const Batch& batch, const Wanted& wanted, const Settings& settings) {
               return run(batch, settings, [&]<class Real>(const Scores<Real>& scores, const Options& options) {
                 return language_mass(choice.view(), scores, wanted.gradients<Real>(batch), options).values;
               });
             });
  module.def("log_z_gradients",
             [](const Choice& choice, const Batch& batch, const Wanted& wanted, const Settings& settings) {
               return run(batch, settings, [&]<class Real>(const Scores<Real>& scores, const Options& options) {
                 return log_z(choice.view(), scores, wanted.gradients<Real>(batch), options).values;
               });
             });
  // `direction`: as Wanted, but read.
  module.def("curvature", [](const Choice& choice, const Batch& batch, const Wanted& direction, const Wanted& wanted,
                             const Settings& settings) {
    return run(batch, settings, [&]<class Real>(const Scores<Real>& scores, const Options& options) {
      const auto along = direction.gradients<Real>(batch);
      const Direction<Real> readable{along.emissions, along.transitions, along.start, along.end};
      return curvature(choice.view(), scores, readable, wanted.gradients<Real>(batch), options).values;
    });
  });
  module.def("nll", &bound_nll);
  module.def("partial_nll", &bound_partial_nll);
  py::enum_<Reduction>(module, "Reduction")
      .value("none", Reduction::none)
      .value("sum", Reduction::sum)
      .value("mean", Reduction::mean)
      .value("token_mean", Reduction::token_mean);
  module.def("divisor", &bound_divisor);
}

}  // namespace regccrf::python
