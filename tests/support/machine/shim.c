// Stands between a process and its C library: the wall clock is off by so many seconds, and reads of a file by position
// fail. What is ordered lies in a file that the test and the process have both mapped, so it changes while all runs.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct orders {
  volatile int64_t seconds_ahead;
  volatile int64_t n_good_reads;  // from then on reads fail; below 0: none does
  volatile int64_t n_reads;       // told to the test
};

static struct orders no_orders = {0, -1, 0};
static struct orders* orders = &no_orders;
static int (*real_clock_gettime)(clockid_t, struct timespec*);
static ssize_t (*real_pread)(int, void*, size_t, off_t);

__attribute__((constructor)) static void begin(void) {
  real_clock_gettime = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  real_pread = (ssize_t(*)(int, void*, size_t, off_t))dlsym(RTLD_NEXT, "pread");
  const char* path = getenv("SHIM_ORDERS");
  const int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  void* mapped = mmap(NULL, sizeof(struct orders), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) orders = mapped;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = real_clock_gettime(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += orders->seconds_ahead;
  return result;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec exact;
  if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (out != NULL) *out = exact.tv_sec;
  return exact.tv_sec;
}

ssize_t pread(int file, void* out, size_t n_bytes, off_t offset) {
  const int64_t n_before = __atomic_fetch_add(&orders->n_reads, 1, __ATOMIC_RELAXED);
  if (orders->n_good_reads >= 0 && n_before >= orders->n_good_reads) {
    errno = EIO;
    return -1;
  }
  return real_pread(file, out, n_bytes, offset);
}

ssize_t pread64(int file, void* out, size_t n_bytes, off_t offset) {
  return pread(file, out, n_bytes, offset);
}
