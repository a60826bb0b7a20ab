// Inference on a device: addresses of device memory and a stream come from the Python side, which keeps the tensors
// alive and makes their device the current one. Nothing waits, except where a constraint goes to the device.
// regccrf/_torch_cuda.py is the user.
#include "regccrf/cuda.h"

#include <algorithm>
#include <cstdint>

#include "bind.h"
#include "losses.h"

namespace py = pybind11;

namespace regccrf::python {
namespace {

using Unlocked = py::call_guard<py::gil_scoped_release>;

template <class T = void>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

cuda::Samples samples(std::int32_t count, std::uint64_t seed, double temperature, Address ids, Address labels,
                      Address status) {
  return {count, seed, temperature, at<const std::uint64_t>(ids), at<std::int32_t>(labels), at<cuda::Status>(status)};
}

cuda::Expectation expectation(const Losses& losses, Address kept, Address gold) {
  return {at<double>(kept + losses.value), at(losses.counts ? kept + losses.counts : 0),
          at(losses.bigrams ? kept + losses.bigrams : 0), at<cuda::Status>(kept + losses.status),
          at<const std::int64_t>(gold)};
}

cuda::Entropy entropy(const Losses& losses, Address kept) {
  const cuda::Expectation e = expectation(losses, kept, 0);
  return {e.value, e.emissions, e.transitions, e.status};
}

cuda::Curvature curvature(const Losses& losses, Address kept, Address gold, const cuda::Direction& direction) {
  const cuda::Expectation e = expectation(losses, kept, gold);
  return {direction, e.status, e.gold, e.value, e.emissions, e.transitions};
}

// Without scores.
cuda::Batch batch_of(const Losses& losses, Address mask = 0) {
  cuda::Batch batch{losses.size, losses.length, losses.batch_stride, losses.time_stride};
  batch.emissions_type = static_cast<cuda::Type>(losses.emissions_type);
  batch.type = static_cast<cuda::Type>(losses.type);
  batch.mask = at<const std::uint8_t>(mask);
  return batch;
}

cuda::Batch batch_of(const Losses& losses, Address emissions, Address transitions, Address start, Address end,
                     Address mask) {
  cuda::Batch batch = batch_of(losses, mask);
  batch.emissions = at(emissions ? emissions : transitions);  // without positions, something that is never read
  batch.transitions = at(transitions);
  batch.start = at(start), batch.end = at(end);
  return batch;
}

constexpr Address kSomewhere = 256;

std::size_t loss_bytes(const Losses& losses, const cuda::DeviceConstraint& constraint, bool of_entropy, bool gold) {
  if (losses.size == 0) return 0;
  if (of_entropy) return cuda::entropy_bytes(constraint, batch_of(losses), entropy(losses, kSomewhere));
  return cuda::expectation_bytes(constraint, batch_of(losses), expectation(losses, kSomewhere, gold ? kSomewhere : 0));
}

void compute(const Losses& losses, const cuda::DeviceConstraint& constraint, const LossCall& call) {
  const cuda::Batch batch = batch_of(losses, call.emissions, call.transitions, call.start, call.end, call.mask);
  const cuda::Loss loss{at<const double>(call.kept + losses.value),
                        at<const cuda::Status>(call.kept + losses.status),
                        call.sign,
                        static_cast<Reduction>(call.reduction),
                        static_cast<cuda::LeftOut>(call.left_out),
                        static_cast<cuda::Type>(call.type),
                        at(call.out),
                        at<double>(call.kept),
                        static_cast<cuda::Errors>(call.errors),
                        call.operation,
                        at<cuda::Failure>(call.failure),
                        at<const std::int64_t>(call.numbers)};
  const cuda::Memory memory{at(call.memory), call.bytes};
  if (!call.entropy) {
    cuda::expectation(constraint, batch, expectation(losses, call.kept, call.gold), memory, at(call.stream), &loss);
    return;
  }
  cuda::entropy(constraint, batch, entropy(losses, call.kept), memory, at(call.stream));
  cuda::reduce(batch.size, loss, at(call.stream));
}

std::size_t curvature_bytes(const Losses& losses, const cuda::DeviceConstraint& constraint) {
  if (losses.size == 0) return 0;
  return cuda::curvature_bytes(constraint, batch_of(losses), curvature(losses, kSomewhere, 0, {}));
}

// `kept` holds scale and status already.
void compute_curvature(const Losses& losses, const cuda::DeviceConstraint& constraint, Address emissions,
                       Address transitions, Address start, Address end, Address mask, Address gold,
                       Address along_emissions, Address along_transitions, Address along_start, Address along_end,
                       Address kept, Address memory, std::size_t bytes, Address stream) {
  const cuda::Batch batch = batch_of(losses, emissions, transitions, start, end, mask);
  const cuda::Direction direction{at(along_emissions), at(along_transitions), at(along_start), at(along_end)};
  cuda::curvature(constraint, batch, curvature(losses, kept, gold, direction), {at(memory), bytes}, at(stream));
}

void weigh(const Losses& losses, const WeighCall& call) {
  const cuda::Expectation found = expectation(losses, call.kept, 0);
  const cuda::Weighing weighing{at(call.weights),
                                call.stride,
                                static_cast<cuda::Type>(call.weights_type),
                                at<const double>(call.kept),
                                found.status,
                                found.emissions,
                                found.transitions,
                                at(call.emissions),
                                at(call.transitions),
                                at(call.start),
                                at(call.end)};
  cuda::weigh(batch_of(losses, call.mask), losses.labels, weighing, at(call.stream));
}

template <class Enum>
constexpr int number(Enum value) {
  return static_cast<int>(value);
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

// PyTorch's operators know no enums: what passes through them comes as the number of one.
void bind_enums(py::module_& module) {
  using cuda::Errors, cuda::LeftOut, cuda::Type;
  py::enum_<Type>(module, "CudaType")
      .value("f16", Type::f16)
      .value("bf16", Type::bf16)
      .value("f32", Type::f32)
      .value("f64", Type::f64);
  py::enum_<LeftOut>(module, "CudaLeftOut")
      .value("no", LeftOut::no)
      .value("skip", LeftOut::skip)
      .value("infinite", LeftOut::infinite);
  py::enum_<Errors>(module, "CudaErrors")
      .value("none", Errors::none)
      .value("bad_scores", Errors::bad_scores)
      .value("all", Errors::all);
}

void bind_batch(py::module_& module) {
  py::class_<cuda::Batch>(module, "CudaBatch")
      .def(py::init([](std::int64_t size, std::int64_t length, std::int64_t batch_stride, std::int64_t time_stride,
                       cuda::Type emissions_type, cuda::Type type, Address emissions, Address transitions,
                       Address start, Address end, Address mask) {
        return cuda::Batch{size,
                           length,
                           batch_stride,
                           time_stride,
                           emissions_type,
                           type,
                           at(emissions),
                           at(transitions),
                           at(start),
                           at(end),
                           at<const std::uint8_t>(mask)};
      }));
  py::class_<cuda::DeviceConstraint>(module, "DeviceConstraint")
      .def(py::init<const Constraint&>(), Unlocked());
}

void bind_losses(py::module_& module) {
  py::class_<Losses>(module, "CudaLosses")
      .def(py::init([](std::int64_t first, std::int64_t second, std::int64_t K, cuda::Type emissions_type,
                       cuda::Type type, std::size_t width, bool batch_first, bool want_counts, bool want_bigrams) {
        return Losses(first, second, K, number(emissions_type), number(type), width, batch_first, want_counts,
                      want_bigrams);
      }))
      .def_readonly("value", &Losses::value)
      .def_readonly("counts", &Losses::counts)
      .def_readonly("end", &Losses::end)
      .def("bytes", &loss_bytes)
      .def(
          "compute",
          [](const Losses& losses, const cuda::DeviceConstraint& constraint, Address emissions, Address transitions,
             Address start, Address end, Address mask, Address gold, bool entropy, double sign, int reduction,
             int left_out, cuda::Type type, int errors, std::int32_t operation, Address failure, Address numbers,
             Address out, Address kept, Address memory, std::size_t bytes, Address stream) {
            compute(losses, constraint,
                    {emissions,    transitions, start,     end,     mask,    gold, entropy, sign,   reduction, left_out,
                     number(type), errors,      operation, failure, numbers, out,  kept,    memory, bytes,     stream});
          },
          Unlocked())
      .def("curvature_bytes", &curvature_bytes)
      .def("curvature", &compute_curvature, Unlocked())
      .def("weigh", [](const Losses& losses, Address weights, std::int64_t stride, cuda::Type weights_type,
                       Address kept, Address mask, Address emissions, Address transitions, Address start, Address end,
                       Address stream) {
        weigh(losses, {weights, stride, number(weights_type), kept, mask, emissions, transitions, start, end, stream});
      });
  module.def("cuda_divisor",
             [](int reduction, std::int64_t size, Address skipped, Address lengths, Address out, Address stream) {
               cuda::divisor(static_cast<Reduction>(reduction), size, at<const std::uint8_t>(skipped),
                             at<const std::int64_t>(lengths), at<double>(out), at(stream));
             });
}

}  // namespace

void bind_cuda(py::module_& module) {
  using cuda::Batch, cuda::DeviceConstraint, cuda::Memory;
  bind_enums(module);
  bind_batch(module);
  bind_losses(module);
  module.def("cuda_built", &cuda::built);
  module.def("cuda_available", &cuda::available);
  module.def("cuda_viterbi_bytes", &cuda::viterbi_bytes);
  module.def(
      "cuda_viterbi",
      [](const DeviceConstraint& constraint, const Batch& batch, Address labels, Address score, Address status,
         Address memory, std::size_t bytes, Address stream) {
        cuda::viterbi(constraint, batch, {at<std::int32_t>(labels), at<double>(score), at<cuda::Status>(status)},
                      Memory{at(memory), bytes}, at(stream));
      },
      Unlocked());
  module.def("cuda_k_best_bytes", [](const DeviceConstraint& constraint, const Batch& batch, std::int32_t k) {
    return cuda::k_best_bytes(constraint, batch, {k, nullptr, nullptr, nullptr});
  });
  module.def(
      "cuda_k_best",
      [](const DeviceConstraint& constraint, const Batch& batch, std::int32_t k, Address labels, Address score,
         Address status, Address memory, std::size_t bytes, Address stream) {
        cuda::k_best(constraint, batch, {k, at<std::int32_t>(labels), at<double>(score), at<cuda::Status>(status)},
                     Memory{at(memory), bytes}, at(stream));
      },
      Unlocked());
  module.def("cuda_sample_bytes", [](const DeviceConstraint& constraint, const Batch& batch, std::int32_t count) {
    return cuda::sample_bytes(constraint, batch, samples(count, 0, 1, 0, 0, 0));
  });
  module.def(
      "cuda_sample",
      [](const DeviceConstraint& constraint, const Batch& batch, std::int32_t count, std::uint64_t seed,
         double temperature, Address ids, Address labels, Address status, Address memory, std::size_t bytes,
         Address stream) {
        cuda::sample(constraint, batch, samples(count, seed, temperature, ids, labels, status),
                     Memory{at(memory), bytes}, at(stream));
      },
      Unlocked());
  module.def("raise_status", [](const char* operation, const Constraint& constraint, std::int64_t sequence,
                                std::int32_t outcome, std::int32_t position, std::int32_t label, std::int32_t length) {
    throw cuda::status_error(operation, constraint, sequence, {outcome, position, label, length});
  });
  module.def("label_lists", &label_lists);
  module.def("first_not_fine", &first_not_fine);
}

}  // namespace regccrf::python
