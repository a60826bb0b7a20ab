// The cheapest unambiguous automaton of a language, by trying what is known to work and measuring.
//
// Candidates:
//   positions          the automaton as built, when it is unambiguous already: small for short unambiguous expressions
//   minimal DFA        deterministic, hence unambiguous
//   co-deterministic   the reverse of the minimal DFA of the reverse
//   product            of an intersection's operands, each taken in its cheapest form: a product of unambiguous
//                      automata is unambiguous, and may be far smaller than either of the above (BIO spans are cheap
//                      backwards, counters are cheap forwards)
// OpenFst's Disambiguate is not among them: where these fail, it fails too (0 of 179 random patterns that met a limit).
// Each may fail at its limit; that is reported only when all of them do. Once one is in hand, the others are tried with
// smaller limits on states and steps, so that an explosion costs little. Steps, not seconds: the result is the same on
// every machine.
#include "language/unambiguous.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "automaton/automaton.h"
#include "language/algebra.h"
#include "language/build.h"

namespace regccrf {
namespace {

constexpr std::int64_t kMostPairs = 20'000'000;  // of states, for the ambiguity test
constexpr std::int64_t kTryStates = 20'000;      // for a candidate when another is in hand already
constexpr std::int64_t kTrySteps = 500'000;      // likewise, or …
constexpr std::int64_t kStepsForEachArc = 8;     // … this many for each arc of the one in hand, if that is more
constexpr std::size_t kMostFlips = 8;            // operands of a product that are tried in another form

// An operand of a product in one of its forms.
enum class Form { kForward, kBackward, kPositions };
struct Operand {
  std::optional<Automaton> forms[3];
  std::optional<Automaton>& operator[](Form form) { return forms[static_cast<int>(form)]; }
};

class Search {
 public:
  Search(const Expr& expr, const Budget& budget)
      : expr_(expr), budget_(budget), kept_(budget, "compile"), best_kept_(budget, "compile") {}

  Unambiguous run() {
    std::optional<Automaton> built = attempt([&] { return build(expr_, budget_); });
    if (built) {
      kept_.hold_more(bytes_of(*built));
      if (accepts_nothing(*built)) throw EmptyLanguage();
      consider_if_unambiguous(*built, "positions");
    }
    if (expr_.kind == Expr::Kind::kIntersect) attempt([&] { return products(); });
    if (built) {
      if (auto dfa = attempt([&] { return minimal_dfa(*built, exploring()); }))
        consider(std::move(*dfa), "minimal DFA");
      if (auto dfa = attempt([&] { return codeterministic(*built, exploring()); }))
        consider(std::move(*dfa), "co-deterministic");
    }
    if (best_) return std::move(*best_);
    std::string message = "[compile] no unambiguous automaton was found within the limits:";
    for (const std::string& failure : failures_) message += "\n  " + failure;
    throw LimitError(message);
  }

 private:
  template <class Construction>
  auto attempt(Construction construction) -> std::optional<decltype(construction())> {
    try {
      return construction();
    } catch (const LimitError& error) {
      if (std::find(failures_.begin(), failures_.end(), error.what()) == failures_.end())
        failures_.push_back(error.what());
      return std::nullopt;
    }
  }

  Budget exploring() const {
    if (!best_) return budget_;
    return budget_.at_most_states(std::max(kTryStates, 4 * best_size_.nodes))
        .at_most_steps(std::max(kTrySteps, kStepsForEachArc * best_size_.arcs));
  }

  void consider(Automaton candidate, const std::string& method) {
    if (accepts_nothing(candidate)) throw EmptyLanguage();
    Size size = measure(candidate);
    if (auto fewer = attempt([&] { return reduced(candidate); })) {
      const Size fewer_size = measure(*fewer);
      if (fewer_size.cost() <= size.cost()) {
        candidate = std::move(*fewer);
        size = fewer_size;
      }
    }
    if (best_ && best_size_.cost() <= size.cost()) return;
    best_size_ = size;
    best_ = Unambiguous{std::move(candidate), method};
    attempt([&] { return best_kept_.hold(bytes_of(best_->automaton)), true; });
  }

  Automaton reduced(const Automaton& automaton) const {
    Meter kept(budget_, "reduce");
    kept.hold(bytes_of(automaton));
    return reduce(automaton, budget_);
  }

  void consider_if_unambiguous(const Automaton& automaton, const std::string& method) {
    if (is_unambiguous(automaton)) consider(automaton, method);
  }

  bool is_unambiguous(const Automaton& automaton) {
    const auto answer = attempt([&] { return test_unambiguous(automaton, kMostPairs, budget_); });
    return answer && answer->value_or(false);
  }

  bool products() {
    Meter kept(budget_, "compile");
    std::vector<Operand> operands;
    std::vector<Form> forms;
    for (const ExprPtr& part : expr_.parts) {
      Operand operand = forms_of(*part, kept);
      const std::optional<Form> form = cheapest(operand);
      if (!form) return false;
      forms.push_back(*form);
      operands.push_back(std::move(operand));
    }
    product(operands, forms);
    if (operands.size() > kMostFlips) return true;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Form other = forms[i] == Form::kForward ? Form::kBackward : Form::kForward;
      if (!operands[i][other]) continue;
      std::vector<Form> flipped = forms;
      flipped[i] = other;
      product(operands, flipped);
    }
    return true;
  }

  Operand forms_of(const Expr& part, Meter& kept) {
    Operand operand;
    const std::optional<Automaton> built = attempt([&] { return build(part, budget_); });
    if (!built) return operand;
    const Budget small = exploring();
    operand[Form::kForward] = attempt([&] { return minimal_dfa(*built, small); });
    operand[Form::kBackward] = attempt([&] { return codeterministic(*built, small); });
    const bool neither = !operand[Form::kForward] && !operand[Form::kBackward];
    if (neither && is_unambiguous(*built)) operand[Form::kPositions] = *built;
    for (const std::optional<Automaton>& form : operand.forms) kept.hold_more(form ? bytes_of(*form) : 0);
    return operand;
  }

  static std::optional<Form> cheapest(Operand& operand) {
    std::optional<Form> best;
    for (Form form : {Form::kForward, Form::kBackward, Form::kPositions}) {
      if (!operand[form]) continue;
      if (!best || measure(*operand[form]).cost() < measure(*operand[*best]).cost()) best = form;
    }
    return best;
  }

  // Operands of one direction are multiplied all at once and minimised in that direction; then the directions are
  // multiplied.
  void product(std::vector<Operand>& operands, const std::vector<Form>& forms) {
    const auto multiply = [&] {
      Meter kept(budget_, "compile");
      std::optional<Automaton> result;
      for (Form form : {Form::kForward, Form::kBackward, Form::kPositions}) {
        std::vector<const Automaton*> same;
        for (std::size_t i = 0; i < operands.size(); ++i) {
          if (forms[i] == form) same.push_back(&*operands[i][form]);
        }
        if (same.empty()) continue;
        Automaton factor = minimized(intersect_all(same, exploring()), form);
        kept.hold_more(bytes_of(factor));
        result = result ? intersect(*result, factor, exploring()) : std::move(factor);
      }
      return *result;
    };
    if (auto result = attempt(multiply)) consider(std::move(*result), describe(forms));
  }

  Automaton minimized(const Automaton& automaton, Form form) const {
    Meter kept(budget_, "compile");
    kept.hold(bytes_of(automaton));
    if (form == Form::kForward) return minimal_dfa(automaton, exploring());
    return form == Form::kBackward ? codeterministic(automaton, exploring()) : automaton;
  }

  static std::string describe(const std::vector<Form>& forms) {
    std::string text = "product of";
    const char* names[] = {" deterministic", " co-deterministic", " position"};
    const char* separator = " ";
    for (int form = 0; form < 3; ++form) {
      const auto many = std::count(forms.begin(), forms.end(), static_cast<Form>(form));
      if (many == 0) continue;
      text += separator + std::to_string(many) + names[form];
      separator = " and ";
    }
    return text + " automata";
  }

  const Expr& expr_;
  const Budget& budget_;
  Meter kept_, best_kept_;
  std::optional<Unambiguous> best_;
  Size best_size_;
  std::vector<std::string> failures_;
};

}  // namespace

Unambiguous cheapest_unambiguous(const Expr& expr, const Budget& budget) { return Search(expr, budget).run(); }

}  // namespace regccrf
