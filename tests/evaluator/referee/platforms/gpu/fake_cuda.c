/* Stands for libcuda.so.1 in tests: functions of CUDA's driver interface after its manual, on the host's memory.
   A call without a current context, or on another stream than the one that was made, is refused. An allocation is a
   file in memory, whose descriptor is its handle, and it can be reached only where it is mapped and access was given. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef int status;
typedef unsigned long long address;
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };

static char the_context, the_stream;
static __thread void *current;
static int live, events;
#define NEEDS_CONTEXT if (current != &the_context) return INVALID_CONTEXT
#define NEEDS_STREAM NEEDS_CONTEXT; if (stream != &the_stream) return INVALID_HANDLE

status cuInit(unsigned flags) { return flags == 0 ? SUCCESS : INVALID_VALUE; }
status cuDeviceGet(int *device, int ordinal) { *device = 5; return ordinal == 0 ? SUCCESS : INVALID_VALUE; }
status cuDevicePrimaryCtxRetain(void **context, int device) { *context = &the_context; return device == 5 ? SUCCESS : INVALID_VALUE; }
status cuCtxSetCurrent(void *context) { current = context; return SUCCESS; }
status cuStreamCreate(void **stream, unsigned flags) { NEEDS_CONTEXT; *stream = &the_stream; return flags == 1 ? SUCCESS : INVALID_VALUE; }
status cuDeviceGetAttribute(int *value, int which, int device) { *value = 60 << 20; return which == 38 && device == 5 ? SUCCESS : INVALID_VALUE; }
status cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
status cuCtxResetPersistingL2Cache(void) { NEEDS_CONTEXT; return SUCCESS; }
status cuGetErrorString(int code, const char **text) { *text = code == OUT_OF_MEMORY ? "out of memory" : "refused"; return SUCCESS; }

struct location { int kind, number; };
struct properties { int kind, exported_as; struct location location; void *of_windows; unsigned char flags[8]; };
struct access { struct location location; int flags; };
enum { GRANULE = 2 << 20 };
#define PLACE ((void *)(uintptr_t)at)
#define HERE(where) ((where).kind == 1 && (where).number == 0)

static int wrong(const struct properties *asked) {
    static const unsigned char none[8];
    return asked->kind != 1 || asked->exported_as != 1 || !HERE(asked->location) || asked->of_windows
        || memcmp(asked->flags, none, sizeof none);
}
status cuMemGetAllocationGranularity(size_t *found, const struct properties *asked, int option) {
    if (wrong(asked) || option != 0) return INVALID_VALUE;
    *found = GRANULE;
    return SUCCESS;
}
status cuMemCreate(address *handle, size_t size, const struct properties *asked, unsigned long long flags) {
    NEEDS_CONTEXT;
    if (wrong(asked) || size == 0 || size % GRANULE || flags) return INVALID_VALUE;
    if (size > (1ULL << 34)) return OUT_OF_MEMORY;
    int fd = memfd_create("device", MFD_CLOEXEC);
    if (ftruncate(fd, size)) return OUT_OF_MEMORY;
    *handle = fd;
    live++;
    return SUCCESS;
}
status cuMemRelease(address handle) { live--; return close(handle) ? INVALID_VALUE : SUCCESS; }
status cuMemAddressReserve(address *found, size_t size, size_t alignment, address hint, unsigned long long flags) {
    if (size % GRANULE || alignment || hint || flags) return INVALID_VALUE;
    void *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *found = (address)(uintptr_t)at;
    return at == MAP_FAILED ? OUT_OF_MEMORY : SUCCESS;
}
status cuMemMap(address at, size_t size, size_t offset, address handle, unsigned long long flags) {
    struct stat file;
    if (offset || flags || fstat(handle, &file) || file.st_size != (off_t)size) return INVALID_VALUE;
    return mmap(PLACE, size, PROT_NONE, MAP_SHARED | MAP_FIXED, handle, 0) == MAP_FAILED ? INVALID_VALUE : SUCCESS;
}
status cuMemSetAccess(address at, size_t size, const struct access *given, size_t count) {
    if (count != 1 || !HERE(given->location) || given->flags != 3) return INVALID_VALUE;
    return mprotect(PLACE, size, PROT_READ | PROT_WRITE) ? INVALID_VALUE : SUCCESS;
}
status cuMemUnmap(address at, size_t size) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    return mmap(PLACE, size, PROT_NONE, flags, -1, 0) == MAP_FAILED ? INVALID_VALUE : SUCCESS;
}
status cuMemAddressFree(address at, size_t size) { return munmap(PLACE, size) ? INVALID_VALUE : SUCCESS; }
status cuMemExportToShareableHandle(int *fd, address handle, int kind, unsigned long long flags) {
    *fd = dup(handle);
    return kind == 1 && flags == 0 && *fd >= 0 ? SUCCESS : INVALID_VALUE;
}
status cuMemImportFromShareableHandle(address *handle, void *fd, int kind) {
    int found = dup((int)(intptr_t)fd);
    if (kind != 1 || found < 0) return INVALID_VALUE;
    *handle = found;
    live++;
    return SUCCESS;
}
status cuMemsetD8Async(address at, unsigned char byte, size_t size, void *stream) { NEEDS_STREAM; memset((void *)(uintptr_t)at, byte, size); return SUCCESS; }
status cuMemcpyDtoDAsync_v2(address to, address from, size_t size, void *stream) { NEEDS_STREAM; memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size); return SUCCESS; }
status cuMemcpyHtoDAsync_v2(address to, const void *from, size_t size, void *stream) { NEEDS_STREAM; memcpy((void *)(uintptr_t)to, from, size); return SUCCESS; }
status cuMemcpyDtoHAsync_v2(void *to, address from, size_t size, void *stream) { NEEDS_STREAM; memcpy(to, (void *)(uintptr_t)from, size); return SUCCESS; }
status cuStreamSynchronize(void *stream) { NEEDS_STREAM; return SUCCESS; }

status cuEventCreate(void **event, unsigned flags) { NEEDS_CONTEXT; *event = calloc(1, sizeof(struct timespec)); events++; return SUCCESS; }
status cuEventRecord(void *event, void *stream) { NEEDS_STREAM; clock_gettime(CLOCK_MONOTONIC, event); return SUCCESS; }
status cuEventDestroy_v2(void *event) { NEEDS_CONTEXT; free(event); events--; return SUCCESS; }
status cuEventElapsedTime_v2(float *milliseconds, void *first, void *second) {
    NEEDS_CONTEXT;
    struct timespec *a = first, *b = second;
    *milliseconds = (b->tv_sec - a->tv_sec) * 1e3 + (b->tv_nsec - a->tv_nsec) / 1e6;
    return SUCCESS;
}
int fake_live(void) { return live; }
int fake_events(void) { return events; }
