// SPDX-License-Identifier: BSD-2-Clause
//
// Built with gcc's ASan whatever the preset: reads the tree through the functions that ASan intercepts too.
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

int main() {
  char text[64] = {};
  FILE* file = fopen("/sys/class/infiniband/verbena0/node_guid", "r");
  if (file == nullptr || fgets(text, sizeof text, file) == nullptr) return 1;
  fclose(file);
  std::fputs(text, stdout);

  dirent** names = nullptr;
  const int count = scandir("/sys/class/infiniband", &names, nullptr, alphasort);
  if (count != 3) return 2;
  for (int i = 0; i < count; ++i) free(names[i]);
  free(names);

  char* resolved = realpath("/sys/class/infiniband_verbs/uverbs0/device", nullptr);
  if (resolved == nullptr) return 3;
  std::puts(resolved);
  free(resolved);

  struct stat status;
  if (stat("/dev/infiniband/uverbs0", &status) != 0 || !S_ISCHR(status.st_mode)) return 4;
  const int fd = open("/dev/infiniband/uverbs0", O_RDWR);
  if (fd < 0 || write(fd, "x", 1) != -1) return 5;
  close(fd);
  char* leak_free = static_cast<char*>(malloc(16));
  free(leak_free);
  return 0;
}
