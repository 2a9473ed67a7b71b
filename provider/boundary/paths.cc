// SPDX-License-Identifier: BSD-2-Clause
#include "boundary/paths.h"

#include <limits.h>

namespace verbena {
namespace {

struct Text {
  const char* data;
  size_t length;
};

template <size_t Size>
constexpr Text literal(const char (&text)[Size]) {
  return {text, Size - 1};
}

// strstr and memcmp are not used: a sanitizer intercepts them, perhaps before it is initialised.
bool begins_with(const char* data, Text what) {
  for (size_t i = 0; i < what.length; ++i)
    if (data[i] != what.data[i]) return false;
  return true;
}

bool equals(Text text, Text what) { return text.length == what.length && begins_with(text.data, what); }

bool ends_with(Text text, Text what) {
  return text.length >= what.length && begins_with(text.data + text.length - what.length, what);
}

constexpr Text kDeviceFolder = literal("/dev/infiniband");
constexpr Text kUverbs = literal("uverbs");
constexpr Text kConnectionManager = literal("/misc/rdma_cm");
constexpr Text kManagerName = literal("rdma_cm");

bool is_digit(char c) { return c >= '0' && c <= '9'; }

Text last_component(Text path) {
  size_t start = path.length;
  while (start > 0 && path.data[start - 1] != '/') --start;
  return {path.data + start, path.length - start};
}

// Is this one of the folders that the node's tree replaces? `path` must be normalised.
bool is_root(Text path) {
  if (equals(path, kDeviceFolder)) return true;
  if (path.length < 5 || !begins_with(path.data, literal("/sys/"))) return false;
  const Text name = last_component(path);
  return equals(name, literal("infiniband")) ||
         (name.length > 11 && begins_with(name.data, literal("infiniband_"))) ||
         ends_with(path, kConnectionManager);
}

// An absolute path without "//", "." and "..", built component by component. The empty text is the root.
class FlatPath {
 public:
  FlatPath() { data_[0] = 0; }
  Text text() const { return {data_, length_}; }
  void up() {
    while (length_ > 0 && data_[--length_] != '/') {
    }
    data_[length_] = 0;
  }
  bool down(Text component) {
    if (component.length + 2 > sizeof data_ - length_) return false;
    data_[length_++] = '/';
    for (size_t i = 0; i < component.length; ++i) data_[length_++] = component.data[i];
    data_[length_] = 0;
    return true;
  }

 private:
  char data_[PATH_MAX];  // only data_[0 .. length_] is initialised
  size_t length_ = 0;
};

class Output {
 public:
  Output(char* data, size_t capacity) : data_(data), capacity_(capacity) {}
  void add(Text text) {
    if (text.length >= capacity_ - length_) {
      overflow_ = true;
      return;
    }
    for (size_t i = 0; i < text.length; ++i) data_[length_++] = text.data[i];
    data_[length_] = 0;
  }
  Place as(Place place) const { return overflow_ ? Place::kTooLong : place; }

 private:
  char* data_;
  size_t capacity_;
  size_t length_ = 0;
  bool overflow_ = false;
};

Text rest_of(const char* text) {
  size_t length = 0;
  while (text[length] != 0) ++length;
  return {text, length};
}

}  // namespace

bool may_concern_node(const char* path) {
  if (path == nullptr) return false;
  for (const char* at = path; *at != 0; ++at) {
    if (*at == 'i' && begins_with(at, literal("infiniband"))) return true;
    if (*at == 'r' && begins_with(at, literal("rdma_cm"))) return true;
    if (*at == 'u' && begins_with(at, kUverbs)) return true;
  }
  return false;
}

bool is_counter(const char* path) {
  for (const char* at = path; *at != 0; ++at)
    if (*at == '/' && (begins_with(at, literal("/hw_counters/")) || begins_with(at, literal("/counters/"))))
      return true;
  return false;
}

bool is_uverbs_name(const char* name) {
  if (!begins_with(name, kUverbs) || !is_digit(name[kUverbs.length])) return false;
  const char* at = name + kUverbs.length;
  while (is_digit(*at)) ++at;
  return *at == 0;
}

bool is_device_name(const char* name) {
  return is_uverbs_name(name) || (begins_with(name, kManagerName) && name[kManagerName.length] == 0);
}

Place judge_path(const char* node, size_t node_length, const char* path, char* out, size_t capacity) {
  FlatPath flat;
  size_t root_length = 0;      // length of the path of the replaced folder; 0: the path is in none
  const char* rest = nullptr;  // the text of `path` after that folder
  bool left = false;

  const char* at = path;
  while (*at != 0) {
    if (*at == '/') {
      ++at;
      continue;
    }
    Text component{at, 0};
    while (*at != 0 && *at != '/') ++at;
    component.length = static_cast<size_t>(at - component.data);
    if (equals(component, literal("."))) continue;
    if (equals(component, literal(".."))) {
      flat.up();
      if (flat.text().length < root_length) {
        root_length = 0;
        left = true;
      }
      continue;
    }
    if (!flat.down(component)) return Place::kTooLong;
    if (root_length == 0 && is_root(flat.text())) {
      root_length = flat.text().length;
      rest = at;
    }
  }

  Output output(out, capacity);
  if (root_length > 0) {
    const Text root{flat.text().data, root_length};
    output.add({node, node_length});
    output.add(root);
    output.add(rest_of(rest));
    const bool below = flat.text().length > root_length;
    const char* name = root.data + root_length + 1;
    const bool device = below && equals(root, kDeviceFolder) && is_device_name(name);
    return output.as(!device ? Place::kNode : is_uverbs_name(name) ? Place::kDevice : Place::kManager);
  }
  if (!left) return Place::kElsewhere;
  output.add(flat.text());
  if (at[-1] == '/' || flat.text().length == 0) output.add(literal("/"));
  return output.as(Place::kLeft);
}

}  // namespace verbena
