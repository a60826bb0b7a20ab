// Inference on a device: the structs of regccrf/cuda.h with their fields by name, and its calls. Pointers are addresses
// of device memory, 0 for absent; they and streams come from the Python side, which keeps the tensors alive and makes
// their device the current one. Nothing waits, except where a constraint goes to the device. regccrf/_torch_cuda.py is
// the user.
#include "regccrf/cuda.h"

#include <algorithm>
#include <cstdint>

#include "bind.h"

namespace py = pybind11;

namespace regccrf::python {
namespace {

using Address = std::uintptr_t;
using Unlocked = py::call_guard<py::gil_scoped_release>;

template <class T = void>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

// A struct, field by field.
template <class Struct>
class Fields {
 public:
  Fields(py::module_& module, const char* name) : bound_(module, name) { bound_.def(py::init<>()); }

  template <class T>
  Fields& value(const char* name, T Struct::*field) {
    bound_.def_readwrite(name, field);
    return *this;
  }
  template <class T>
  Fields& address(const char* name, T* Struct::*field) {
    bound_.def_property(
        name, [field](const Struct& self) { return reinterpret_cast<Address>(self.*field); },
        [field](Struct& self, Address address) { self.*field = at<T>(address); });
    return *this;
  }

 private:
  py::class_<Struct> bound_;
};

// A call that takes a struct, as name(constraint, batch, struct, memory, bytes, stream), and how many bytes it needs.
template <class Request>
void bind_call(py::module_& module, const std::string& name,
               std::size_t (*bytes)(const cuda::DeviceConstraint&, const cuda::Batch&, const Request&),
               void (*call)(const cuda::DeviceConstraint&, const cuda::Batch&, const Request&, cuda::Memory, void*)) {
  module.def((name + "_bytes").c_str(), bytes);
  module.def(
      name.c_str(),
      [call](const cuda::DeviceConstraint& constraint, const cuda::Batch& batch, const Request& request, Address memory,
             std::size_t size, Address stream) {
        call(constraint, batch, request, {at(memory), size}, at(stream));
      },
      Unlocked());
}

void bind_enums(py::module_& module) {
  using cuda::Errors, cuda::Objective, cuda::Outside, cuda::Type;
  py::enum_<Type>(module, "CudaType")
      .value("f16", Type::f16)
      .value("bf16", Type::bf16)
      .value("f32", Type::f32)
      .value("f64", Type::f64);
  py::enum_<Objective>(module, "CudaObjective")
      .value("log_z", Objective::log_z)
      .value("nll", Objective::nll)
      .value("entropy", Objective::entropy);
  py::enum_<Outside>(module, "CudaOutside")
      .value("keep", Outside::keep)
      .value("skip", Outside::skip)
      .value("infinite", Outside::infinite);
  py::enum_<Errors>(module, "CudaErrors")
      .value("none", Errors::none)
      .value("bad_scores", Errors::bad_scores)
      .value("all", Errors::all);
}

template <class Array>
void bind_array(py::module_& module, const char* name) {
  py::class_<Array>(module, name).def(py::init([](Address data, cuda::Type type) { return Array{at(data), type}; }));
}

void bind_batch(py::module_& module) {
  using cuda::Batch;
  bind_array<cuda::Array>(module, "CudaArray");
  bind_array<cuda::ConstArray>(module, "CudaConstArray");
  Fields<Batch>(module, "CudaBatch")
      .value("size", &Batch::size)
      .value("length", &Batch::length)
      .value("batch_stride", &Batch::batch_stride)
      .value("time_stride", &Batch::time_stride)
      .value("emissions", &Batch::emissions)
      .value("transitions", &Batch::transitions)
      .value("start", &Batch::start)
      .value("end", &Batch::end)
      .address("mask", &Batch::mask);
  py::class_<cuda::DeviceConstraint>(module, "DeviceConstraint").def(py::init<const Constraint&>(), Unlocked());
}

void bind_loss(py::module_& module) {
  using cuda::Curvature, cuda::Direction, cuda::Loss, cuda::LossGradients, cuda::SavedForBackward;
  Fields<SavedForBackward>(module, "CudaSavedForBackward")
      .address("scale", &SavedForBackward::scale)
      .address("status", &SavedForBackward::status)
      .address("value", &SavedForBackward::value)
      .value("emissions", &SavedForBackward::emissions)
      .value("transitions", &SavedForBackward::transitions);
  Fields<Loss>(module, "CudaLoss")
      .value("objective", &Loss::objective)
      .address("gold", &Loss::gold)
      .value("sign", &Loss::sign)
      .value("reduction", &Loss::reduction)
      .value("outside", &Loss::outside)
      .value("out", &Loss::out)
      .value("saved", &Loss::saved)
      .value("errors", &Loss::errors)
      .address("failure", &Loss::failure)
      .value("operation", &Loss::operation)
      .address("sequence_ids", &Loss::sequence_ids);
  bind_call<Loss>(module, "cuda_loss", &cuda::loss_bytes, &cuda::loss);
  Fields<LossGradients>(module, "CudaLossGradients")
      .value("weights", &LossGradients::weights)
      .value("weights_stride", &LossGradients::weights_stride)
      .value("saved", &LossGradients::saved)
      .value("emissions", &LossGradients::emissions)
      .value("transitions", &LossGradients::transitions)
      .value("start", &LossGradients::start)
      .value("end", &LossGradients::end);
  module.def("cuda_loss_gradients", [](const cuda::Batch& batch, std::int32_t labels, const LossGradients& gradients,
                                       Address stream) { cuda::loss_gradients(batch, labels, gradients, at(stream)); });
  Fields<Direction>(module, "CudaDirection")
      .value("emissions", &Direction::emissions)
      .value("transitions", &Direction::transitions)
      .value("start", &Direction::start)
      .value("end", &Direction::end);
  Fields<Curvature>(module, "CudaCurvature")
      .value("direction", &Curvature::direction)
      .address("status", &Curvature::status)
      .address("gold", &Curvature::gold)
      .address("value", &Curvature::value)
      .value("emissions", &Curvature::emissions)
      .value("transitions", &Curvature::transitions);
  bind_call<Curvature>(module, "cuda_curvature", &cuda::curvature_bytes, &cuda::curvature);
}

void bind_decoding(py::module_& module) {
  using cuda::Best, cuda::KBest, cuda::Samples;
  Fields<Best>(module, "CudaBest")
      .address("labels", &Best::labels)
      .address("score", &Best::score)
      .address("status", &Best::status);
  bind_call<Best>(
      module, "cuda_viterbi",
      [](const cuda::DeviceConstraint& constraint, const cuda::Batch& batch, const Best&) {
        return cuda::viterbi_bytes(constraint, batch);
      },
      &cuda::viterbi);
  Fields<KBest>(module, "CudaKBest")
      .value("k", &KBest::k)
      .address("labels", &KBest::labels)
      .address("score", &KBest::score)
      .address("status", &KBest::status);
  bind_call<KBest>(module, "cuda_k_best", &cuda::k_best_bytes, &cuda::k_best);
  Fields<Samples>(module, "CudaSamples")
      .value("count", &Samples::count)
      .value("seed", &Samples::seed)
      .value("temperature", &Samples::temperature)
      .address("ids", &Samples::ids)
      .address("labels", &Samples::labels)
      .address("status", &Samples::status);
  bind_call<Samples>(module, "cuda_sample", &cuda::sample_bytes, &cuda::sample);
}

// Host memory [rows, width] as lists; a row ends at its first negative number.
py::list label_lists(Address address, std::int64_t rows, std::int64_t width) {
  py::list lists(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto* row = at<const std::int32_t>(address) + i * width;
    const auto length = std::find_if(row, row + width, [](std::int32_t label) { return label < 0; }) - row;
    py::list labels(static_cast<std::size_t>(length));
    for (std::int64_t t = 0; t < length; ++t) PyList_SET_ITEM(labels.ptr(), t, PyLong_FromLong(row[t]));
    PyList_SET_ITEM(lists.ptr(), i, labels.release().ptr());
  }
  return lists;
}

// The first of `size` statuses in host memory that is not fine; -1: all are.
std::int64_t first_not_fine(Address address, std::int64_t size) {
  const auto* status = at<const cuda::Status>(address);
  const auto* found = std::find_if(status, status + size, [](const cuda::Status& s) { return s.outcome != 0; });
  return found == status + size ? -1 : found - status;
}

}  // namespace

void bind_cuda(py::module_& module) {
  bind_enums(module);
  bind_batch(module);
  bind_loss(module);
  bind_decoding(module);
  module.def("cuda_built", &cuda::built);
  module.def("cuda_available", &cuda::available);
  module.def("raise_status", [](const char* operation, const Constraint& constraint, std::int64_t sequence,
                                std::int32_t outcome, std::int32_t position, std::int32_t label, std::int32_t length) {
    throw cuda::status_error(operation, constraint, sequence, {outcome, position, label, length});
  });
  module.def("label_lists", &label_lists);
  module.def("first_not_fine", &first_not_fine);
}

}  // namespace regccrf::python
