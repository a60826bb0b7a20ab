// The training loss on a device as an autograd node in C++: `DeviceLoss` of _torch_ops.py, with less for the host to
// do. Python has no part in its backward pass, which runs in a thread of autograd's, unless gradients are to be
// differentiated.
//
// Built for one version of PyTorch by `python -m regccrf.node`; without it the layer does the same in Python. The
// kernels are the core's, called by way of _node.h.
#include "_node.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>

namespace py = pybind11;
using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace regccrf::python {
namespace {

const LossCalls* core = nullptr;
PyObject* twice =
    nullptr;  // (what Python gave, which gradients, weights, saved tensors …) → gradients that can be differentiated
PyObject* refused = nullptr;  // regccrf.Error

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The core's answer, and what it throws as Refused.
template <class Call>
auto of_core(const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw Refused(error.what());
  }
}

Address address(const Tensor& x) { return x.defined() ? reinterpret_cast<Address>(x.data_ptr()) : 0; }

bool is_half(const Tensor& x) { return x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16; }
bool is_full(const Tensor& x) { return x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble; }
int number_of(at::ScalarType type) {
  const Numbers& n = core->numbers;
  return type == at::kHalf ? n.f16 : type == at::kBFloat16 ? n.bf16 : type == at::kFloat ? n.f32 : n.f64;
}

// A Python object, let go of under the interpreter's lock: a node can end in any thread.
class Held {
 public:
  explicit Held(py::object object) : object_(std::move(object)) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (!Py_IsInitialized()) {  // a graph that outlives the interpreter
      object_.release();
      return;
    }
    const py::gil_scoped_acquire lock;
    object_ = py::object();
  }
  const py::object& operator*() const { return object_; }

 private:
  py::object object_;
};

using Gradients = std::array<Tensor, 4>;  // of h, g, s, e; undefined where not wanted

Gradients room_for_gradients(const std::array<Tensor, 4>& scores, const std::array<bool, 4>& needed) {
  Gradients room;
  for (std::size_t i = 0; i < room.size(); ++i) {
    if (needed[i]) room[i] = at::empty(scores[i].sizes(), scores[i].options());
  }
  return room;
}

struct Asked : torch::CustomClassHolder {
  Asked(const Losses& losses, py::object given) : losses(losses), python(std::move(given)) {}
  bool differentiate() const { return needed[0] || needed[1] || needed[2] || needed[3]; }
  Losses losses;
  LossCall call;
  Address constraint = 0;
  std::array<bool, 4> needed{};  // of the gradients of h, g, s, e, as it was at first
  Tensor mask, gold;
  Gradients room;  // for the first backward pass: in autograd's thread it takes twice as long to make
  Held python;     // what `twice` needs, and what has to live until then
};

// Python's current error, as autograd carries one from thread to thread.
[[noreturn]] void throw_python_error() {
  python_error carried;
  carried.persist();
  throw carried;
}

variable_list differentiable_gradients(const Asked& asked, const Tensor& weights, const variable_list& saved) {
  const py::gil_scoped_acquire lock;
  try {
    const py::tuple found = py::handle(twice)(*asked.python, asked.needed, weights, *py::cast(saved));
    variable_list gradients;
    for (const py::handle& one : found) gradients.push_back(one.is_none() ? Tensor() : one.cast<Tensor>());
    return gradients;
  } catch (py::error_already_set& error) {
    error.restore();
    throw_python_error();
  }
}

class DeviceLoss : public torch::autograd::Function<DeviceLoss> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& h, const Tensor& g, const Tensor& s, const Tensor& e,
                        const c10::intrusive_ptr<Asked>& asked) {
    const Tensor emissions = h.contiguous(), transitions = g.contiguous(), start = s.contiguous(), end = e.contiguous(),
                 mask = asked->mask.defined() ? asked->mask.contiguous() : Tensor(), gold = asked->gold.contiguous();
    LossCall& call = asked->call;
    call.emissions = address(emissions), call.transitions = address(transitions), call.start = address(start);
    call.end = address(end), call.mask = address(mask), call.gold = address(gold);
    if (call.gold == 0) call.gold = call.transitions;  // T = 0: there, and never read
    call.bytes = of_core([&] { return core->bytes(asked->losses, asked->constraint, false, true); });
    call.type = number_of(g.scalar_type());
    const auto bytes = h.options().dtype(at::kByte), numbers = h.options().dtype(g.scalar_type());
    const Tensor memory = at::empty({static_cast<std::int64_t>(call.bytes)}, bytes),
                 kept = at::empty({static_cast<std::int64_t>(asked->losses.end)}, bytes);
    Tensor out =
        call.reduction == core->numbers.unreduced ? at::empty({asked->losses.size}, numbers) : at::empty({}, numbers);
    call.memory = address(memory), call.kept = address(kept), call.out = address(out);
    of_core([&] { core->compute(asked->losses, asked->constraint, call); });
    if (asked->differentiate()) {
      asked->room = room_for_gradients({h, g, s, e}, asked->needed);
      ctx->save_for_backward({h, g, s, e, asked->mask, asked->gold, kept});
      ctx->saved_data["asked"] = c10::IValue::make_capsule(asked);
      asked->mask = asked->gold = Tensor();
    }
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& given) {
    const auto asked = c10::static_intrusive_pointer_cast<Asked>(ctx->saved_data["asked"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &weights = given[0], &kept = saved[6];
    Gradients gradients = std::exchange(asked->room, {});  // the caller's from now on
    if (at::GradMode::is_enabled()) {
      variable_list found = differentiable_gradients(*asked, weights, saved);
      found.emplace_back();
      return found;
    }
    const auto is_there = [](const Tensor& x) { return x.defined(); };
    if (std::none_of(gradients.begin(), gradients.end(), is_there)) {  // a second pass
      gradients = room_for_gradients({saved[0], saved[1], saved[2], saved[3]}, asked->needed);
    }
    const c10::DeviceGuard there(kept.device());
    const Tensor mask = saved[4].defined() ? saved[4].contiguous() : Tensor();
    const WeighCall call{address(weights),
                         weights.dim() > 0 ? weights.stride(0) : 0,
                         number_of(weights.scalar_type()),
                         address(kept),
                         address(mask),
                         address(gradients[0]),
                         address(gradients[1]),
                         address(gradients[2]),
                         address(gradients[3]),
                         asked->call.stream};
    try {
      of_core([&] { core->weigh(asked->losses, call); });
    } catch (const Refused& error) {
      const py::gil_scoped_acquire lock;
      PyErr_SetString(refused, error.what());
      throw_python_error();
    }
    variable_list found(gradients.size() + 1);
    std::move(gradients.begin(), gradients.end(), found.begin());
    return found;
  }
};

// Whether the arguments are such as they are in most calls. What is wrong, is to be converted, or is a tensor of
// another kind than PyTorch's own, is Python's.
bool is_common(const Tensor& h, const Tensor& g, const Tensor& s, const Tensor& e, const std::optional<Tensor>& mask,
               const Tensor& gold, std::int64_t K) {
  constexpr c10::DispatchKeySet others(
      {c10::DispatchKey::Python, c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchBatched});
  const auto is_plain = [&](const Tensor& x) {
    return !x.key_set().has_any(others) && x.device() == h.device() && !x._fw_grad(0).defined();
  };
  const auto has_type = [&](const Tensor& x) { return x.scalar_type() == g.scalar_type(); };
  if (torch::jit::tracer::isTracing()) return false;
  if (h.dim() != 3 || h.size(2) != K || g.dim() != 2 || g.size(0) != K || g.size(1) != K || !is_full(g) ||
      !has_type(s) || !has_type(e))
    return false;
  if (!has_type(h) && !(is_half(h) && g.scalar_type() == at::kFloat)) return false;
  if (gold.scalar_type() != at::kLong || gold.sizes() != h.sizes().slice(0, 2)) return false;
  if (mask && (mask->scalar_type() != at::kBool || mask->sizes() != gold.sizes() || !is_plain(*mask))) return false;
  return is_plain(h) && is_plain(g) && is_plain(s) && is_plain(e) && is_plain(gold);
}

// The loss of `device_loss` with gold. None: see is_common.
std::optional<Tensor> nll(const Tensor& h, const Tensor& g, const Tensor& s, const Tensor& e,
                          const std::optional<Tensor>& mask, const Tensor& gold, std::int64_t K, bool batch_first,
                          double sign, int reduction, int left_out, int errors, std::int32_t operation,
                          Address constraint, Address failure, Address numbers, Address stream, py::object given) {
  if (!is_common(h, g, s, e, mask, gold, K)) return std::nullopt;
  std::array<bool, 4> needed{h.requires_grad(), g.requires_grad(), s.requires_grad(), e.requires_grad()};
  if (!at::GradMode::is_enabled()) needed = {};
  const Losses losses(h.size(0), h.size(1), K, number_of(h.scalar_type()), number_of(g.scalar_type()), g.element_size(),
                      batch_first, needed[0] || needed[2] || needed[3], needed[1]);
  auto asked = c10::make_intrusive<Asked>(losses, std::move(given));
  LossCall& call = asked->call;
  call.sign = sign, call.reduction = reduction, call.left_out = left_out, call.errors = errors;
  call.operation = operation, call.failure = failure, call.numbers = numbers, call.stream = stream;
  asked->constraint = constraint, asked->needed = needed;
  if (mask) asked->mask = *mask;
  asked->gold = gold;
  try {
    const py::gil_scoped_release unlocked;
    const c10::DeviceGuard there(h.device());
    return DeviceLoss::apply(h, g, s, e, asked);
  } catch (const Refused& error) {
    PyErr_SetString(refused, error.what());
    throw py::error_already_set();
  }
}

// What the node needs of the core and of Python. These live as long as the process.
void use(Address calls, py::object differentiable, py::object error) {
  core = reinterpret_cast<const LossCalls*>(calls);
  twice = differentiable.release().ptr();
  refused = error.release().ptr();
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("use", &use);
  module.def("nll", torch::wrap_pybind_function(nll));
}

}  // namespace regccrf::python
