// Causes the fault that the argument names. With the settings of the fuzz targets, each fault must end the program.
//
// usage: controls abort|leak|overflow|undefined|index      exit status 0: the fault was not detected
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

namespace {

// The compiler does not know this value; otherwise it would warn of the faults.
volatile int one = 1;

void forget() {
  int* volatile lost = new int[1000];
  lost = nullptr;
}

int done(const std::string& fault) {
  const auto place = static_cast<std::size_t>(one) + 3;
  if (fault == "abort") std::abort();
  if (fault == "leak") forget();
  if (fault == "overflow") {
    const std::vector<char> bytes(4);
    return bytes.data()[place];
  }
  if (fault == "undefined") return std::numeric_limits<int>::max() + one;
  if (fault == "index") {
    std::vector<char> bytes(4);
    bytes.reserve(8);
    return bytes[place];
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  std::printf("%s: %d\n", argv[1], done(argv[1]));
  return 0;
}
