// Launches as programs make them: what they may use, who watches, and a record by which they can be made again elsewhere:
// with sanitizers, in other orders, in a process that holds nothing of the program but its kernels.
#include "../include/runtime.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace cuh {

Watcher* watcher = nullptr;

namespace {

std::vector<std::pair<const void*, size_t>> shared_limits;

struct Region {
  size_t bytes = 0;
  bool given = false;    // an input or a tensor of the model's, not memory that the program has made
  uint64_t known = 0;  // a hash of what the record says that it holds
  bool recorded = false;
};

// The memory that kernels may be given: by its first address.
struct Regions {
  std::map<uintptr_t, Region> all;
  std::mutex busy;

  void add(const void* place, size_t bytes) {
    std::lock_guard<std::mutex> alone(busy);
    const uintptr_t at = reinterpret_cast<uintptr_t>(place);
    auto next = all.lower_bound(at);
    while (next != all.end() && next->first < at + bytes) next = all.erase(next);
    all[at] = {bytes};
  }
  // An input or a tensor of the model's. A part of memory that is known is known.
  void give(const void* place, size_t bytes) {
    {
      std::lock_guard<std::mutex> alone(busy);
      const uintptr_t at = reinterpret_cast<uintptr_t>(place);
      const auto found = holding(at);
      if (found != all.end() && at + bytes <= found->first + found->second.bytes) return;
    }
    add(place, bytes);
    all[reinterpret_cast<uintptr_t>(place)].given = true;
  }
  void forget_given() {
    std::lock_guard<std::mutex> alone(busy);
    for (auto each = all.begin(); each != all.end();) each = each->second.given ? all.erase(each) : std::next(each);
  }
  void remove(const void* place) {
    std::lock_guard<std::mutex> alone(busy);
    all.erase(reinterpret_cast<uintptr_t>(place));
  }
  std::map<uintptr_t, Region>::iterator holding(uintptr_t at) {
    auto next = all.upper_bound(at);
    if (next == all.begin()) return all.end();
    --next;
    return at < next->first + std::max<size_t>(1, next->second.bytes) ? next : all.end();
  }
};
Regions regions;

// Variables of the device that were set, by name: what they hold when a record begins is a part of it.
struct VariableSet {
  char* place;
  size_t bytes;
};
std::map<std::string, VariableSet> variables_set;

uint64_t hash_of(const void* place, size_t bytes) {
  const char* from = static_cast<const char*>(place);
  uint64_t hash = bytes * 0x9e3779b97f4a7c15u + 1;
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, from + i, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  for (; i < bytes; i++) hash = (hash ^ static_cast<unsigned char>(from[i])) * 0x100000001b3u;
  return hash;
}

// The file: records of a letter and what follows, in the machine's own byte order.
//   M address bytes content     memory, as it is before the next launch
//   L name grid block dynamic limit count (size bytes)...     a launch
//   S name offset bytes content     a variable of the device
struct Recorder : Watcher {
  std::FILE* file;
  bool run;
  size_t left;  // bytes that may still be written
  bool full = false;
  std::vector<uintptr_t> touched;

  Recorder(const char* path, bool run, size_t limit) : file(std::fopen(path, "wb")), run(run), left(limit) {}
  ~Recorder() override { if (file) std::fclose(file); }

  void put(const void* bytes, size_t size) {
    if (!file || full) return;
    if (size > left) { full = true; std::fputc('!', file); return; }
    left -= size;
    std::fwrite(bytes, 1, size, file);
  }
  template <class T> void put(T value) { put(&value, sizeof value); }
  void put_text(const std::string& text) { put(uint32_t(text.size())); put(text.data(), text.size()); }

  void symbol(const char* name, const void* content, size_t bytes, size_t offset) {
    put('S'); put_text(name); put(uint64_t(offset)); put(uint64_t(bytes)); put(content, bytes);
  }

  bool before(const std::string& name, const Config& config, size_t limit, const Argument* arguments,
              size_t count) override {
    std::lock_guard<std::mutex> alone(regions.busy);
    touched.clear();
    for (const Argument* each = arguments; each < arguments + count; each++)
      for (size_t at = 0; at + 8 <= each->size; at += 8) {
        uintptr_t word;
        std::memcpy(&word, static_cast<const char*>(each->bytes) + at, 8);
        auto found = regions.holding(word);
        if (found == regions.all.end()) continue;
        Region& region = found->second;
        const void* content = reinterpret_cast<const void*>(found->first);
        const uint64_t hash = hash_of(content, region.bytes);
        if (!region.recorded || region.known != hash) {
          put('M'); put(uint64_t(found->first)); put(uint64_t(region.bytes)); put(content, region.bytes);
          region.recorded = true;
          region.known = hash;
        }
        touched.push_back(found->first);
      }
    put('L'); put_text(name);
    for (const dim3& each : {config.grid, config.block}) { put(each.x); put(each.y); put(each.z); }
    put(uint64_t(config.dynamic_bytes)); put(uint64_t(limit)); put(uint32_t(count));
    for (const Argument* each = arguments; each < arguments + count; each++) {
      put(uint32_t(each->size)); put(each->bytes, each->size);
    }
    if (file) std::fflush(file);
    return run;
  }
  void after() override {
    std::lock_guard<std::mutex> alone(regions.busy);
    for (uintptr_t each : touched) {
      auto found = regions.all.find(each);
      if (found != regions.all.end())
        found->second.known = hash_of(reinterpret_cast<const void*>(each), found->second.bytes);
    }
  }
};

}  // namespace

void know_memory(const void* place, size_t bytes) { regions.add(place, bytes); }
void forget_memory(const void* place) { regions.remove(place); }

void set_variable(const char* name, void* symbol, const void* from, size_t bytes, size_t offset) {
  std::memcpy(static_cast<char*>(symbol) + offset, from, bytes);
  VariableSet& set = variables_set[name];
  set = {static_cast<char*>(symbol), std::max(set.bytes, offset + bytes)};
  if (watcher) static_cast<Recorder*>(watcher)->symbol(name, static_cast<char*>(symbol) + offset, bytes, offset);
}

void allow_shared(const void* kernel, size_t bytes) { shared_limits.emplace_back(kernel, bytes); }

size_t shared_limit_of(const void* kernel) {
  for (auto& [function, bytes] : shared_limits)
    if (function == kernel) return std::max(bytes, plain_shared_bytes);
  return plain_shared_bytes;
}

std::string name_in(const char* pretty) {
  std::string text = pretty;
  const size_t from = text.find("kernel = ") + 9;
  text = text.substr(from, text.rfind("; std::string") != std::string::npos && text.rfind("; std::string") > from
                               ? text.rfind("; std::string") - from
                               : text.rfind(']') - from);
  for (size_t at; (at = text.find("{anonymous}::")) != std::string::npos;) text.erase(at, 13);
  return text;
}

std::string name_at(const void* kernel) {
  Dl_info found;
  if (!dladdr(kernel, &found) || found.dli_saddr != kernel || !found.dli_sname) return "?";
  int status = 1;
  char* written = abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &status);
  std::string text = status == 0 ? written : found.dli_sname;  // that of extern "C" is not mangled
  std::free(written);
  int depth = 0;
  for (size_t at = 0; at < text.size(); at++) {
    depth += (text[at] == '<') - (text[at] == '>');
    if (text[at] == '(' && depth == 0) text.resize(at);  // the parameters
  }
  return text.starts_with("void ") ? text.substr(5) : text;  // the demangled name of a template has its result
}

void launch_grid(const std::string& name, const Config& config, size_t shared_limit, const Argument* arguments,
                 size_t count, void (*entry)(void*), void* argument) {
  const std::string told = name == "?" ? "a kernel" : name;
  check_launch(told, config.grid, config.block, config.dynamic_bytes, shared_limit);
  if (!watcher || watcher->before(name, config, shared_limit, arguments, count))
    run_grid(told, config.grid, config.block, config.dynamic_bytes, shared_limit, entry, argument);
  if (watcher) watcher->after();
}

}  // namespace cuh

// What the runner calls, once for all extensions of a process.
extern "C" {
__attribute__((visibility("default"))) void cuh_record(const char* path, int run, uint64_t limit) {
  delete cuh::watcher;
  cuh::watcher = nullptr;
  for (auto& [place, region] : cuh::regions.all) region.recorded = false;
  if (!path) return cuh::regions.forget_given();
  auto* recorder = new cuh::Recorder(path, run != 0, limit);
  for (const auto& [name, set] : cuh::variables_set) recorder->symbol(name.c_str(), set.place, set.bytes, 0);
  cuh::watcher = recorder;
}
__attribute__((visibility("default"))) void cuh_region(const void* place, uint64_t bytes) {
  cuh::regions.give(place, bytes);
}
}
