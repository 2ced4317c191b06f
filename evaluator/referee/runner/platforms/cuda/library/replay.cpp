// The program that makes recorded launches again.
#include "../include/replay.h"

#include <algorithm>
#include <map>

namespace cuh {
namespace {

struct Reader {
  std::FILE* file;
  bool read(void* into, size_t size) { return std::fread(into, 1, size, file) == size; }
  template <class T> T get() {
    T value{};
    if (!read(&value, sizeof value)) throw Broken("the record of launches ends early");
    return value;
  }
  std::string text() {
    const uint32_t size = get<uint32_t>();
    if (size > 65536) throw Broken("the record of launches is broken");
    std::string text(size, 0);
    if (!read(text.data(), size)) throw Broken("the record of launches ends early");
    return text;
  }
};

struct Held {
  size_t bytes;
  char* place;
};
std::map<uint64_t, Held> held;

void relocate(char* bytes, size_t size) {
  for (size_t at = 0; at + 8 <= size; at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes + at, 8);
    auto next = held.upper_bound(word);
    if (next == held.begin()) continue;
    --next;
    if (word >= next->first + std::max<size_t>(1, next->second.bytes)) continue;
    word = reinterpret_cast<uint64_t>(next->second.place + (word - next->first));
    std::memcpy(bytes + at, &word, 8);
  }
}

// The candidate may name a variable from within its namespace.
bool same_variable(const std::string& told, const std::string& known) {
  const auto ends_with = [](const std::string& whole, const std::string& end) {
    return whole.size() > end.size() && whole.compare(whole.size() - end.size(), end.size(), end) == 0;
  };
  return told == known || ends_with(known, "::" + told) || ends_with(told, "::" + known);
}

}  // namespace

int replay(int count, char** words, const std::vector<Entry>& entries, const std::vector<Symbol>& symbols) {
  if (count != 4) return 2;
  Reader reader{std::fopen(words[1], "rb")};
  if (!reader.file) return 2;
  set_order(words[3]);
  unsigned launches = 0;
  std::string fault;
  bool broken = false;
  try {
    for (int kind; (kind = std::fgetc(reader.file)) != EOF;) {
      if (kind == 'M') {
        const uint64_t at = reader.get<uint64_t>(), bytes = reader.get<uint64_t>();
        if (bytes > (uint64_t(1) << 36)) throw Broken("the record of launches is broken");
        auto found = held.find(at);
        if (found == held.end() || found->second.bytes != bytes) {
          for (auto next = held.lower_bound(at); next != held.end() && next->first < at + bytes;) {
            std::free(next->second.place);
            next = held.erase(next);
          }
          void* place = nullptr;  // exactly as long as the tensor, so that what lies behind it is out of bounds
          if (posix_memalign(&place, 256, bytes ? bytes : 1)) throw Broken("no memory for the tensors");
          held[at] = {bytes, static_cast<char*>(place)};
        }
        if (!reader.read(held[at].place, bytes)) throw Broken("the record of launches ends early");
      } else if (kind == 'L') {
        const std::string name = reader.text();
        unsigned size[6];
        for (unsigned& each : size) each = reader.get<unsigned>();
        const uint64_t dynamic = reader.get<uint64_t>(), limit = reader.get<uint64_t>();
        const uint32_t arguments = reader.get<uint32_t>();
        if (arguments > 256) throw Broken("the record of launches is broken");
        std::vector<std::string> given;
        for (uint32_t i = 0; i < arguments; i++) {
          std::string bytes = reader.text();
          relocate(bytes.data(), bytes.size());
          given.push_back(std::move(bytes));
        }
        const Entry* entry = nullptr;
        for (const Entry& each : entries)
          if (name == each.name) entry = &each;
        if (!entry) throw Broken("the record of launches names no kernel of the source: " + name);
        launches++;
        entry->thunk(name, Config(dim3(size[0], size[1], size[2]), dim3(size[3], size[4], size[5]), dynamic), limit, given);
      } else if (kind == 'S') {
        const std::string name = reader.text();
        const uint64_t offset = reader.get<uint64_t>(), bytes = reader.get<uint64_t>();
        const Symbol* symbol = nullptr;
        for (const Symbol& each : symbols)
          if (same_variable(name, each.name)) symbol = &each;
        if (!symbol || offset > symbol->bytes || bytes > symbol->bytes - offset)
          throw Broken("the record of launches names no variable of the source: " + name);
        if (!reader.read(static_cast<char*>(symbol->place) + offset, bytes)) throw Broken("the record of launches ends early");
      } else {
        throw Broken("the record of launches is incomplete: the tensors are too large for it");
      }
    }
  } catch (const Broken& error) {
    fault = error.what();
    broken = true;
  } catch (const Fault& error) {
    fault = error.what();
  }
  std::fclose(reader.file);
  if (std::FILE* out = std::fopen(words[2], "wb")) {
    for (auto& [at, each] : held) {
      const uint64_t bytes = each.bytes;
      std::fwrite(&at, 8, 1, out);
      std::fwrite(&bytes, 8, 1, out);
      std::fwrite(each.place, 1, bytes, out);
    }
    std::fclose(out);
  }
  std::string quoted;
  for (char each : fault) {
    if (each == '"' || each == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(each) < 32 ? ' ' : each;
  }
  std::printf("{\"launches\": %u, \"fault\": \"%s\"}\n", launches, quoted.c_str());
  std::fflush(stdout);
  std::_Exit(broken ? 67 : fault.empty() ? 0 : 66);
}

}  // namespace cuh
