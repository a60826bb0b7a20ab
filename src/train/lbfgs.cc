// libLBFGS behind a function (see lbfgs.h). Its own test for too little progress is left to the caller, who knows of
// iterations before this call. Exceptions do not cross the C code: they are kept, and the next iteration stops.
#include "train/lbfgs.h"

#include <lbfgs.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <memory>
#include <string>

#include "regccrf/error.h"

namespace regccrf {

namespace {

constexpr int kAsked = 1000;  // what progress() returns to stop, and lbfgs() then too

struct Call {
  const Evaluate& evaluate;
  const OnIteration& on_iteration;
  std::exception_ptr error;
};

double evaluate(void* instance, const double* x, double* g, int n, double /*step*/) {
  Call& call = *static_cast<Call*>(instance);
  const auto size = static_cast<std::size_t>(n);
  try {
    if (!call.error) return call.evaluate({x, size}, {g, size});
  } catch (...) {
    call.error = std::current_exception();
  }
  std::fill_n(g, size, 0.0);
  return std::numeric_limits<double>::quiet_NaN();
}

int progress(void* instance, const double* x, const double* /*g*/, double fx, double /*xnorm*/, double gnorm,
             double /*step*/, int n, int iteration, int /*evaluations*/) {
  Call& call = *static_cast<Call*>(instance);
  try {
    if (!call.error) return call.on_iteration({iteration, fx, gnorm, {x, static_cast<std::size_t>(n)}}) ? 0 : kAsked;
  } catch (...) {
    call.error = std::current_exception();
  }
  return kAsked;
}

LbfgsEnd end_of(int status) {
  switch (status) {
    case LBFGS_CONVERGENCE:
    case LBFGS_STOP:
    case LBFGS_ALREADY_MINIMIZED:
      return LbfgsEnd::converged;
    case LBFGSERR_MAXIMUMITERATION:
      return LbfgsEnd::iterations;
    case kAsked:
      return LbfgsEnd::asked;
    case LBFGSERR_ROUNDING_ERROR:
    case LBFGSERR_MINIMUMSTEP:
    case LBFGSERR_MAXIMUMSTEP:
    case LBFGSERR_MAXIMUMLINESEARCH:
    case LBFGSERR_WIDTHTOOSMALL:
    case LBFGSERR_OUTOFINTERVAL:
    case LBFGSERR_INCORRECT_TMINMAX:
    case LBFGSERR_INCREASEGRADIENT:
      return LbfgsEnd::stuck;
    case LBFGSERR_OUTOFMEMORY:
      throw std::bad_alloc();
    default:
      throw Error("[train] libLBFGS failed with status " + std::to_string(status));
  }
}

lbfgs_parameter_t parameters_of(const TrainOptions& options, int iterations) {
  const int searches[] = {LBFGS_LINESEARCH_MORETHUENTE, LBFGS_LINESEARCH_BACKTRACKING_WOLFE,
                          LBFGS_LINESEARCH_BACKTRACKING_STRONG_WOLFE};
  lbfgs_parameter_t parameters;
  lbfgs_parameter_init(&parameters);
  parameters.m = options.memories;
  parameters.epsilon = options.epsilon;
  parameters.past = 0;
  parameters.max_iterations = iterations;
  parameters.max_linesearch = options.line_search_trials;
  parameters.linesearch = searches[static_cast<int>(options.line_search)];
  if (options.l1 > 0) {
    parameters.orthantwise_c = options.l1;
    parameters.linesearch = LBFGS_LINESEARCH_BACKTRACKING;  // the one that orthants allow
  }
  return parameters;
}

}  // namespace

LbfgsEnd minimize_lbfgs(std::span<double> w, const TrainOptions& options, int iterations, const Evaluate& evaluate_at,
                        const OnIteration& on_iteration) {
  if (w.empty()) return LbfgsEnd::converged;
  if (w.size() > static_cast<std::size_t>(std::numeric_limits<int>::max() - 16)) {
    throw Error("[train] " + std::to_string(w.size()) + " weights are more than libLBFGS takes; raise min_count");
  }
  const int n = static_cast<int>(w.size());
  lbfgs_parameter_t parameters = parameters_of(options, iterations);
  // Aligned and padded as libLBFGS wants it.
  const std::unique_ptr<double, void (*)(double*)> x(lbfgs_malloc(n), lbfgs_free);
  if (!x) throw std::bad_alloc();
  std::copy(w.begin(), w.end(), x.get());
  Call call{evaluate_at, on_iteration, nullptr};
  const int status = lbfgs(n, x.get(), nullptr, evaluate, progress, &call, &parameters);
  if (call.error) std::rethrow_exception(call.error);
  const LbfgsEnd end = end_of(status);
  std::copy_n(x.get(), w.size(), w.begin());
  return end;
}

}  // namespace regccrf
