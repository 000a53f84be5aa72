// Greedy decoding with ExecuTorch, the cache updated in place: no tensor is copied between steps.
//
//     executorch_decode decode.pte NEW_TOKENS PROMPT_ID...
//
// prints the ids of the new tokens. `decode.pte` is the `decode` component of an export with
// `multi_token_decode`, a static cache, and the three `alloc_*` keys False, which leave all inputs
// and outputs to the caller's memory. docs/executorch_cpp.md has the target, and how to link.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>

using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::extension::from_blob;
using executorch::extension::MallocMemoryAllocator;
using executorch::extension::MmapDataLoader;
using executorch::extension::TensorPtr;
using namespace executorch::runtime;

namespace {

constexpr const char* kMethod = "forward";
// Inputs in the manifest's order: input_ids [batch, tokens] int64, the mask [batch, 1, tokens,
// capacity] bool, position_ids [batch, tokens] int64, then every tensor of the cache.
constexpr size_t kIds = 0, kMask = 1, kPositions = 2, kCache = 3;

void check(Error error, const std::string& what) {
  if (error != Error::Ok) {
    throw std::runtime_error(what + ": " + to_string(error));
  }
}

template <typename T>
T take(Result<T> result, const std::string& what) {
  check(result.error(), what);
  return std::move(result.get());
}

// Zeros. The system hands out pages as they are touched, so that a large bound costs an address
// range and no memory.
using Buffer = std::unique_ptr<uint8_t, decltype(&std::free)>;

Buffer make_buffer(size_t bytes) {
  Buffer buffer(static_cast<uint8_t*>(std::calloc(std::max<size_t>(bytes, 1), 1)), &std::free);
  if (buffer == nullptr) {
    throw std::bad_alloc();
  }
  return buffer;
}

bool same_tensor(const TensorInfo& a, const TensorInfo& b) {
  return a.scalar_type() == b.scalar_type() &&
      std::equal(a.sizes().begin(), a.sizes().end(), b.sizes().begin(), b.sizes().end());
}

// The arenas that the export planned for what is neither input nor output.
class Arenas {
 public:
  explicit Arenas(const MethodMeta& meta)
      : spans_(allocate(meta, buffers_)), planned_({spans_.data(), spans_.size()}) {}

  // What a Method allocates when it is loaded, and where it computes.
  MemoryManager& memory() {
    return memory_;
  }

 private:
  static std::vector<Span<uint8_t>> allocate(const MethodMeta& meta, std::vector<Buffer>& buffers) {
    std::vector<Span<uint8_t>> spans;
    for (size_t i = 0; i < meta.num_memory_planned_buffers(); ++i) {
      const auto bytes =
          static_cast<size_t>(take(meta.memory_planned_buffer_size(i), "memory plan"));
      buffers.push_back(make_buffer(bytes));
      spans.emplace_back(buffers.back().get(), bytes);
    }
    return spans;
  }

  std::vector<Buffer> buffers_;
  std::vector<Span<uint8_t>> spans_;
  HierarchicalAllocator planned_;
  MallocMemoryAllocator bookkeeping_;
  MemoryManager memory_{&bookkeeping_, &planned_};
};

// One sequence, decoded from an empty cache on.
class Decoder {
 public:
  explicit Decoder(const char* path)
      // Mapped, so that the weights are read from the file and aren't copied to the heap.
      : loader_(take(MmapDataLoader::from(path, MmapDataLoader::MlockConfig::NoMlock), path)),
        program_(take(Program::load(&loader_), path)),
        meta_(take(program_.method_meta(kMethod), path)),
        arenas_(meta_),
        method_(take(program_.load_method(kMethod, &arenas_.memory()), path)) {
    check_signature();
    bind_cache();
    bind_logits();
  }

  // Everything above holds pointers to what was made before it.
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // How many tokens the cache has room for.
  size_t capacity() const {
    return capacity_;
  }

  // Runs the next tokens of the sequence (a prompt, or one token) and returns the likeliest after
  // them.
  int64_t feed(std::vector<int64_t> ids) {
    const size_t count = ids.size();
    if (count == 0 || past_ + count > capacity_) {
      throw std::runtime_error(
          "the cache holds " + std::to_string(capacity_) + " tokens, not " +
          std::to_string(past_ + count) + ": export with a larger max_cache_len");
    }
    std::vector<int64_t> positions(count);
    // Each token sees the slots up to its own. `vector<bool>` has no bytes to point to.
    std::vector<uint8_t> mask(count * capacity_);
    for (size_t token = 0; token < count; ++token) {
      positions[token] = static_cast<int64_t>(past_ + token);
      std::fill_n(mask.begin() + token * capacity_, past_ + token + 1, 1);
    }
    const auto n = static_cast<SizesType>(count);
    const auto slots = static_cast<SizesType>(capacity_);
    set_input(from_blob(ids.data(), {1, n}, ScalarType::Long), kIds);
    set_input(from_blob(mask.data(), {1, 1, n, slots}, ScalarType::Bool), kMask);
    set_input(from_blob(positions.data(), {1, n}, ScalarType::Long), kPositions);
    check(method_.execute(), "execute");
    past_ += count;
    const auto* last = reinterpret_cast<const float*>(logits_.get()) + (count - 1) * vocabulary_;
    return std::max_element(last, last + vocabulary_) - last;
  }

 private:
  TensorInfo input(size_t index) const {
    return take(meta_.input_tensor_meta(index), "input " + std::to_string(index));
  }

  TensorInfo output(size_t index) const {
    return take(meta_.output_tensor_meta(index), "output " + std::to_string(index));
  }

  void set_input(const TensorPtr& tensor, size_t index) {
    check(method_.set_input(EValue(*tensor), index), "set input " + std::to_string(index));
  }

  // The outputs, for a cache of n tensors: the n inputs that the graph writes to, logits, and the
  // cache once more, as the model returns it.
  size_t logits_index() const {
    return meta_.num_inputs() - kCache;
  }

  void check_signature() const {
    const size_t tensors = meta_.num_inputs() > kCache ? meta_.num_inputs() - kCache : 0;
    bool fits = tensors > 0 && meta_.num_outputs() == 2 * tensors + 1;
    fits = fits && input(kIds).scalar_type() == ScalarType::Long &&
        input(kMask).scalar_type() == ScalarType::Bool && input(kMask).sizes().size() == 4 &&
        input(kPositions).scalar_type() == ScalarType::Long &&
        output(tensors).scalar_type() == ScalarType::Float && output(tensors).sizes().size() == 3;
    for (size_t i = 0; fits && i < tensors; ++i) {
      fits = same_tensor(input(kCache + i), output(i)) &&
          same_tensor(input(kCache + i), output(tensors + 1 + i));
    }
    if (!fits) {
      throw std::runtime_error(
          "not a decode graph with one mask and a static cache: see docs/executorch_cpp.md");
    }
    for (size_t i = 0; i < meta_.num_outputs(); ++i) {
      if (output(i).is_memory_planned()) {
        throw std::runtime_error(
            "output " + std::to_string(i) +
            " lies in the arena: export with alloc_graph_input, alloc_graph_output and "
            "alloc_mutable_buffers False");
      }
    }
  }

  // One buffer for each tensor of the cache: the graph reads it as its input and writes it as both
  // of its outputs, so that the next call finds what this one left. Bound once; the Method keeps
  // the pointers.
  void bind_cache() {
    capacity_ = static_cast<size_t>(input(kMask).sizes()[3]);
    for (size_t i = 0; i < logits_index(); ++i) {
      const TensorInfo info = input(kCache + i);
      std::vector<SizesType> sizes(info.sizes().begin(), info.sizes().end());
      if (!sizes.empty()) {
        sizes[0] = 1; // The file says the largest batch; this is one sequence.
      }
      // As large as the largest batch: set_output_data_ptr takes no less.
      Buffer buffer = make_buffer(info.nbytes());
      set_input(from_blob(buffer.get(), std::move(sizes), info.scalar_type()), kCache + i);
      bind_output(buffer, info.nbytes(), i);
      bind_output(buffer, info.nbytes(), logits_index() + 1 + i);
      cache_.push_back(std::move(buffer));
    }
  }

  void bind_logits() {
    const TensorInfo info = output(logits_index());
    vocabulary_ = static_cast<size_t>(info.sizes()[2]);
    logits_ = make_buffer(info.nbytes());
    bind_output(logits_, info.nbytes(), logits_index());
  }

  void bind_output(const Buffer& buffer, size_t bytes, size_t index) {
    check(
        method_.set_output_data_ptr(buffer.get(), bytes, index),
        "bind output " + std::to_string(index));
  }

  MmapDataLoader loader_;
  Program program_;
  MethodMeta meta_;
  Arenas arenas_;
  std::vector<Buffer> cache_;
  Buffer logits_{nullptr, &std::free};
  Method method_;
  size_t capacity_ = 0;
  size_t vocabulary_ = 0;
  size_t past_ = 0;
};

int64_t parse_number(const std::string& text) {
  size_t end = 0;
  int64_t number = -1;
  try {
    number = std::stoll(text, &end);
  } catch (const std::exception&) {
  }
  if (end != text.size() || number < 0) {
    throw std::runtime_error("'" + text + "' is no token id and no number of tokens");
  }
  return number;
}

void decode(const char* path, int64_t steps, std::vector<int64_t> prompt) {
  Decoder decoder(path);
  // The prompt in one call, then token by token.
  for (int64_t step = 0; step < steps; ++step) {
    const int64_t token = decoder.feed(std::move(prompt));
    std::printf(step == 0 ? "%lld" : " %lld", static_cast<long long>(token));
    std::fflush(stdout);
    prompt = {token};
  }
  std::printf("\n");
}

} // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: executorch_decode decode.pte NEW_TOKENS PROMPT_ID...\n");
    return 2;
  }
  runtime_init();
  try {
    std::vector<int64_t> prompt;
    for (int i = 3; i < argc; ++i) {
      prompt.push_back(parse_number(argv[i]));
    }
    decode(argv[1], parse_number(argv[2]), std::move(prompt));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "executorch_decode: %s\n", error.what());
    return 1;
  }
  return 0;
}
