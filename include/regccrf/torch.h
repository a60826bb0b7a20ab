// RegCCRF for LibTorch: a torch::nn::Module on a regular language, header-only; the one public header that includes
// torch.
//
//   regccrf::RegCCRF crf(regccrf::compile(regccrf::Language::parse("(O | B-PER I-PER*)*")));
//   torch::Tensor emissions = torch::randn({4, 2, 3}, torch::requires_grad());  // [T, B, K]: a network's scores
//   torch::Tensor tags = torch::zeros({4, 2}, torch::kLong);                    // [T, B]: label ids
//   torch::Tensor mask = torch::ones({4, 2}, torch::kBool);                     // [T, B]: which positions there are
//   torch::Tensor loss = -crf(emissions, tags, mask);
//   loss.backward();
//   std::vector<std::vector<regccrf::Label>> best = crf->decode(emissions, mask);
//
// Constraint::unconstrained(labels) makes it an ordinary CRF. Parameters are named as in regccrf.torch and pytorch-crf.
// Tensors of half precision are computed in float32, tensors on another device on the CPU. Gradients are closed form. A
// masked position is treated as absent. Tags that are not in the language are an Error that names the place, unless
// RegCCRFOptions::outside is skip.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "regccrf/inference.h"
#include "regccrf/loss.h"

namespace regccrf {

struct RegCCRFOptions {
  bool batch_first = false;                  // emissions are [B, T, K] and not [T, B, K]
  bool start_end = true;                     // false: no start and end scores, the form of the paper
  int threads = 0;                           // 0: as many as LibTorch uses
  OutsideGold outside = OutsideGold::error;  // skip: sequences whose tags are not in the language do not count
};

namespace torch_layer {

// Scores in one precision on the CPU, and the layout of a padded batch. Empty tensors stand for what is absent.
struct Input {
  ::torch::Tensor emissions, transitions, start, end, mask;
  Layout layout;

  Input(const ::torch::autograd::variable_list& scores, const ::torch::Tensor& present, bool batch_first)
      : emissions(plain(scores[0])),
        transitions(plain(scores[1])),
        start(plain(scores[2])),
        end(plain(scores[3])),
        mask(plain(present)),
        layout((batch_first ? Layout::padded : Layout::time_first)(emissions.size(0), emissions.size(1))
                   .with_mask(memory<const std::uint8_t>(mask))) {}

  static ::torch::Tensor plain(const ::torch::Tensor& x) { return x.detach().cpu().contiguous(); }

  template <class T>
  static std::span<T> memory(const ::torch::Tensor& x) {
    if (x.numel() == 0) return {};
    return {static_cast<T*>(x.data_ptr()), static_cast<std::size_t>(x.numel())};
  }

  template <class Real>
  Scores<Real> scores() const {
    return Scores(memory<const Real>(emissions), memory<const Real>(transitions), layout)
        .with_start_end(memory<const Real>(start), memory<const Real>(end));
  }

  // call(scores) in the emissions' precision.
  template <class Call>
  auto with_scores(const Call& call) const {
    return emissions.scalar_type() == ::torch::kDouble ? call(scores<double>()) : call(scores<float>());
  }

  ::torch::autograd::variable_list gradients() const {
    return {::torch::empty_like(emissions), ::torch::empty_like(transitions), ::torch::empty_like(start),
            ::torch::empty_like(end)};
  }

  ::torch::Tensor numbers(const std::vector<double>& values) const {
    return ::torch::tensor(values, ::torch::kDouble).to(emissions.scalar_type());
  }
};

template <class Real>
Gradients<Real> wanted(const ::torch::autograd::variable_list& gradients, const ::torch::Tensor& weights = {}) {
  return {Input::memory<Real>(gradients[0]), Input::memory<Real>(gradients[1]), Input::memory<Real>(gradients[2]),
          Input::memory<Real>(gradients[3]),
          weights.defined() ? Input::memory<const Real>(weights) : std::span<const Real>()};
}

// What is differentiated.
enum class Kind { nll, partial_nll, log_z, entropy, language_mass };

struct Question {
  Kind kind;
  Constraint constraint;
  ::torch::Tensor mask;  // uint8, shaped as the emissions without K; empty for absent
  ::torch::Tensor gold;  // nll: int32 label ids, shaped so too; partial_nll: uint8, shaped as the emissions
  bool batch_first;
  LossOptions options;

  Loss ask(const Input& input, const ::torch::autograd::variable_list& gradients,
           const ::torch::Tensor& weights = {}) const {
    return input.with_scores([&]<class Real>(const Scores<Real>& scores) {
      const Gradients<Real> want = wanted<Real>(gradients, weights);
      switch (kind) {
        case Kind::nll:
          return regccrf::nll(constraint, scores, Input::memory<const Label>(gold), want, options);
        case Kind::partial_nll:
          return regccrf::partial_nll(constraint, scores, Input::memory<const std::uint8_t>(gold), want, options);
        case Kind::log_z:
          return regccrf::log_z(constraint, scores, want, options);
        case Kind::entropy:
          return regccrf::entropy(constraint, scores, want, options);
        case Kind::language_mass:
          break;
      }
      return regccrf::language_mass(constraint, scores, want, options);
    });
  }
};

class Differentiable : public ::torch::autograd::Function<Differentiable> {
 public:
  // Values [B], and which sequences were skipped [B], on the CPU.
  static ::torch::autograd::variable_list forward(::torch::autograd::AutogradContext* context,
                                                  ::torch::Tensor emissions, ::torch::Tensor transitions,
                                                  ::torch::Tensor start, ::torch::Tensor end,
                                                  const Question& question) {
    const Input input({emissions, transitions, start, end}, question.mask, question.batch_first);
    context->saved_data["question"] = c10::IValue::make_capsule(c10::make_intrusive<Keep>(question));
    context->save_for_backward({emissions, transitions, start, end});
    const Loss loss = question.ask(input, {{}, {}, {}, {}});
    const ::torch::Tensor skipped = ::torch::tensor(loss.skipped, ::torch::kByte);
    context->mark_non_differentiable({skipped});
    return {input.numbers(loss.values).to(emissions.device()), skipped};
  }

  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* context,
                                                   ::torch::autograd::variable_list outputs) {
    const auto scores = context->get_saved_variables();
    const auto kept = c10::static_intrusive_pointer_cast<Keep>(context->saved_data["question"].toCapsule());
    const Question& question = kept->question;
    const Input input(scores, question.mask, question.batch_first);
    ::torch::autograd::variable_list gradients = input.gradients();
    question.ask(input, gradients, Input::plain(outputs[0]));
    for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = gradients[i].to(scores[i].device());
    gradients.emplace_back();
    return gradients;
  }

 private:
  struct Keep : ::torch::CustomClassHolder {
    explicit Keep(const Question& q) : question(q) {}
    Question question;
  };
};

}  // namespace torch_layer

class RegCCRFImpl : public ::torch::nn::Module {
 public:
  explicit RegCCRFImpl(Constraint constraint, const RegCCRFOptions& options = {})
      : constraint_(std::move(constraint)), options_(options) {
    const std::int64_t K = constraint_.labels().size();
    if (options.start_end) {
      start_transitions = register_parameter("start_transitions", ::torch::empty({K}));
      end_transitions = register_parameter("end_transitions", ::torch::empty({K}));
    }
    transitions = register_parameter("transitions", ::torch::empty({K, K}));
    reset_parameters();
  }

  void reset_parameters() {
    for (::torch::Tensor& parameter : parameters()) ::torch::nn::init::uniform_(parameter, -0.1, 0.1);
  }

  // log P(tags | emissions) under the language. reduction: none [B], sum, mean, token_mean (loss.h: Reduction).
  ::torch::Tensor forward(const ::torch::Tensor& emissions, const ::torch::Tensor& tags,
                          const ::torch::Tensor& mask = {}, const std::string& reduction = "sum") {
    const Reduction by = reduction_of(reduction);
    const auto loss = gold_loss(emissions, tags, mask);
    const ::torch::Tensor values = -loss[0];
    if (by == Reduction::none) return values;
    const ::torch::Tensor lengths = lengths_of(emissions, mask);
    using torch_layer::Input;
    return values.sum() /
           divisor(by, Input::memory<const std::uint8_t>(loss[1]), Input::memory<const std::int64_t>(lengths));
  }

  // The loss: forward times -1.
  ::torch::Tensor nll(const ::torch::Tensor& emissions, const ::torch::Tensor& tags, const ::torch::Tensor& mask = {},
                      const std::string& reduction = "sum") {
    return -forward(emissions, tags, mask, reduction);
  }

  // tags: label ids; or, for partly known labels, sets of allowed labels as a bool tensor shaped as the emissions. [B]
  ::torch::Tensor log_prob(const ::torch::Tensor& emissions, const ::torch::Tensor& tags,
                           const ::torch::Tensor& mask = {}) {
    return -gold_loss(emissions, tags, mask)[0];
  }

  // For each sequence, whether it is in the language, and where it leaves it (masked positions do not count). [B]
  std::vector<Membership> check(const ::torch::Tensor& tags, const ::torch::Tensor& mask = {}) const {
    const auto rows = [&](const ::torch::Tensor& x) {
      return (options_.batch_first ? x : x.t()).to(::torch::kInt).cpu().contiguous();
    };
    const ::torch::Tensor labels = rows(tags), present = rows(mask.defined() ? mask.ne(0) : ::torch::ones_like(tags));
    std::vector<Membership> result;
    for (std::int64_t i = 0; i < labels.size(0); ++i) {
      std::vector<Label> sequence;
      for (std::int64_t t = 0; t < labels.size(1); ++t) {
        if (present[i][t].item<int>()) sequence.push_back(labels[i][t].item<int>());
      }
      result.push_back(constraint_.accepts(sequence));
    }
    return result;
  }

  // log_z: [B]
  ::torch::Tensor log_partition(const ::torch::Tensor& emissions, const ::torch::Tensor& mask = {}) {
    return differentiable(torch_layer::Kind::log_z, emissions, mask, {})[0];
  }

  // In nats: [B]
  ::torch::Tensor entropy(const ::torch::Tensor& emissions, const ::torch::Tensor& mask = {}) {
    return differentiable(torch_layer::Kind::entropy, emissions, mask, {})[0];
  }

  // log P(L | emissions), the probability of all legal sequences without the constraint: [B]; −inf for none.
  ::torch::Tensor language_mass(const ::torch::Tensor& emissions, const ::torch::Tensor& mask = {}) {
    return differentiable(torch_layer::Kind::language_mass, emissions, mask, {})[0];
  }

  // The most likely label ids of each sequence, without masked positions. Always in the language.
  std::vector<std::vector<Label>> decode(const ::torch::Tensor& emissions, const ::torch::Tensor& mask = {}) {
    return labels_of(on_scores(emissions, mask,
                               [&](const auto& scores, const Options& o) { return viterbi(constraint_, scores, o); }));
  }

  // The label ids with the largest sum of marginals: the fewest wrong labels to be expected. Always in the language.
  std::vector<std::vector<Label>> posterior_decode(const ::torch::Tensor& emissions, const ::torch::Tensor& mask = {}) {
    return labels_of(on_scores(emissions, mask, [&](const auto& scores, const Options& o) {
      return regccrf::posterior_decode(constraint_, scores, o);
    }));
  }

  // The k best sequences with their scores, distinct, best first; fewer if there are fewer. [B][≤ k]
  std::vector<std::vector<Path>> k_best(const ::torch::Tensor& emissions, int k, const ::torch::Tensor& mask = {}) {
    return on_scores(emissions, mask,
                     [&](const auto& scores, const Options& o) { return regccrf::k_best(constraint_, scores, k, o); });
  }

  // Independent sequences from the distribution. [B][count]
  std::vector<std::vector<Path>> sample(const ::torch::Tensor& emissions, const Sampling& sampling,
                                        const ::torch::Tensor& mask = {}) {
    return on_scores(emissions, mask, [&](const auto& scores, const Options& o) {
      return regccrf::sample(constraint_, scores, sampling, o);
    });
  }

  // P(y_t = a), shaped as the emissions; zeros under the mask.
  ::torch::Tensor marginals(const ::torch::Tensor& emissions, const ::torch::Tensor& mask = {}) {
    const torch_layer::Input in = input(emissions, mask);
    const ::torch::Tensor out = ::torch::zeros_like(in.emissions);
    in.with_scores([&]<class Real>(const Scores<Real>& scores) {
      label_marginals(constraint_, scores, torch_layer::Input::memory<Real>(out),
                      question(torch_layer::Kind::log_z, emissions, mask, {}).options);
    });
    return out.to(emissions.device());
  }

  const Constraint& constraint() const { return constraint_; }

  // The same weights under another constraint over the same labels; Constraint::unconstrained(labels) takes it away.
  void set_constraint(Constraint constraint) {
    if (!(constraint.labels() == constraint_.labels())) throw Error("[RegCCRF] the new constraint has other labels");
    constraint_ = std::move(constraint);
  }

  void pretty_print(std::ostream& stream) const override {
    stream << "RegCCRF(num_tags=" << constraint_.labels().size() << ")";
  }

  ::torch::Tensor start_transitions, end_transitions;  // [K], undefined without start_end
  ::torch::Tensor transitions;                         // [K, K] from, to

 private:
  static void check_shape(const char* what, const ::torch::Tensor& x, const ::torch::Tensor& emissions) {
    if (x.dim() == 2 && x.size(0) == emissions.size(0) && x.size(1) == emissions.size(1)) return;
    throw Error(std::string("[RegCCRF] the first two dimensions of emissions and ") + what + " must match");
  }

  ::torch::autograd::variable_list scores(const ::torch::Tensor& emissions) const {
    if (emissions.dim() != 3 || emissions.size(2) != constraint_.labels().size()) {
      throw Error("[RegCCRF] emissions must have three dimensions, the last of size " +
                  std::to_string(constraint_.labels().size()));
    }
    auto type = ::torch::promote_types(emissions.scalar_type(), transitions.scalar_type());
    if (type != ::torch::kDouble) type = ::torch::kFloat;
    const ::torch::Tensor none = ::torch::empty({0}, ::torch::dtype(type));
    return {emissions.to(type), transitions.to(type), options_.start_end ? start_transitions.to(type) : none,
            options_.start_end ? end_transitions.to(type) : none};
  }

  torch_layer::Question question(torch_layer::Kind kind, const ::torch::Tensor& emissions, const ::torch::Tensor& mask,
                                 const ::torch::Tensor& gold) const {
    if (mask.defined()) check_shape("mask", mask, emissions);
    torch_layer::Question q{kind,
                            constraint_,
                            mask.defined() ? mask.ne(0).to(::torch::kByte) : ::torch::empty({0}, ::torch::kByte),
                            gold,
                            options_.batch_first,
                            {}};
    q.options.outside = options_.outside;
    q.options.threads = options_.threads > 0 ? options_.threads : ::torch::get_num_threads();
    return q;
  }

  torch_layer::Input input(const ::torch::Tensor& emissions, const ::torch::Tensor& mask) const {
    return {scores(emissions), question(torch_layer::Kind::log_z, emissions, mask, {}).mask, options_.batch_first};
  }

  // call(scores, options) in the emissions' precision.
  template <class Call>
  auto on_scores(const ::torch::Tensor& emissions, const ::torch::Tensor& mask, const Call& call) const
      -> decltype(call(std::declval<Scores<float>>(), Options())) {
    const Options options = question(torch_layer::Kind::log_z, emissions, mask, {}).options;
    return input(emissions, mask).with_scores([&](const auto& scores) { return call(scores, options); });
  }

  static std::vector<std::vector<Label>> labels_of(std::vector<Path> paths) {
    std::vector<std::vector<Label>> labels;
    for (Path& path : paths) labels.push_back(std::move(path.labels));
    return labels;
  }

  static Reduction reduction_of(const std::string& name) {
    if (name == "none") return Reduction::none;
    if (name == "sum") return Reduction::sum;
    if (name == "mean") return Reduction::mean;
    if (name == "token_mean") return Reduction::token_mean;
    throw Error("[RegCCRF] invalid reduction: " + name + " (expected none, sum, mean or token_mean)");
  }

  // Of each sequence's present positions, on the CPU. [B]
  ::torch::Tensor lengths_of(const ::torch::Tensor& emissions, const ::torch::Tensor& mask) const {
    const std::int64_t sequences = options_.batch_first ? 0 : 1, positions = 1 - sequences;
    if (mask.defined()) return mask.ne(0).sum(positions).cpu().contiguous();
    return ::torch::full({emissions.size(sequences)}, emissions.size(positions), ::torch::kLong);
  }

  // −log P(tags | emissions), and which sequences were skipped. [B], [B]
  ::torch::autograd::variable_list gold_loss(const ::torch::Tensor& emissions, const ::torch::Tensor& tags,
                                             const ::torch::Tensor& mask) {
    using torch_layer::Kind;
    const bool sets = tags.scalar_type() == ::torch::kBool && tags.sizes() == emissions.sizes();
    if (sets) return differentiable(Kind::partial_nll, emissions, mask, tags.to(::torch::kByte).cpu().contiguous());
    check_shape("tags", tags, emissions);
    return differentiable(Kind::nll, emissions, mask, tags.to(::torch::kInt).cpu().contiguous());
  }

  // Values, and which sequences were skipped. [B], [B]
  ::torch::autograd::variable_list differentiable(torch_layer::Kind kind, const ::torch::Tensor& emissions,
                                                  const ::torch::Tensor& mask, const ::torch::Tensor& gold) {
    const auto s = scores(emissions);
    torch_layer::Question q = question(kind, emissions, mask, gold);
    const bool infinite_is_an_answer = kind == torch_layer::Kind::log_z || kind == torch_layer::Kind::language_mass;
    if (infinite_is_an_answer) q.options.impossible = Impossible::allow;
    return torch_layer::Differentiable::apply(s[0], s[1], s[2], s[3], q);
  }

  Constraint constraint_;
  RegCCRFOptions options_;
};
TORCH_MODULE(RegCCRF);

}  // namespace regccrf
