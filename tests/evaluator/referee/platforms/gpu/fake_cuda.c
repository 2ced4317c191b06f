/* Stands for libcuda.so.1 in tests: functions of CUDA's driver interface after its manual, on the host's memory.
   A call without a current context, or on another stream than the one that was made, is refused. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int status;
typedef unsigned long long address;
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_HANDLE = 400 };

static char the_context, the_stream;
static __thread void *current;
static char *last_base;
static size_t last_size;
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

/* Allocations lie 512 bytes into a larger block, as those of a driver that cuts blocks into pieces would. */
status cuMemAlloc_v2(address *found, size_t size) {
    NEEDS_CONTEXT;
    if (size > (1ULL << 34)) return OUT_OF_MEMORY;
    last_size = size + 512;
    last_base = calloc(1, last_size);
    *found = (address)(uintptr_t)(last_base + 512);
    live++;
    return SUCCESS;
}
status cuMemFree_v2(address at) { NEEDS_CONTEXT; free((char *)(uintptr_t)at - 512); live--; return SUCCESS; }
status cuMemGetAddressRange_v2(address *base, size_t *size, address at) {
    NEEDS_CONTEXT;
    *base = at - 512;
    *size = last_size;
    return SUCCESS;
}
struct handle { unsigned char bytes[64]; };
status cuIpcGetMemHandle(struct handle *handle, address at) {
    NEEDS_CONTEXT;
    memset(handle, 0xAB, sizeof *handle);
    address base = at - 512;
    memcpy(handle, &base, sizeof base);
    return SUCCESS;
}
status cuIpcOpenMemHandle_v2(address *found, struct handle handle, unsigned flags) {
    if (flags != 1 || handle.bytes[63] != 0xAB) return INVALID_VALUE;
    memcpy(found, &handle, sizeof *found);
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
