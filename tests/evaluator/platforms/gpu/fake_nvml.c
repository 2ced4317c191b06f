/* Stands for libnvidia-ml.so.1 in tests: NVML's functions after its reference manual, one GPU whose answers are fixed. */
#include <string.h>

typedef int status;
typedef void *device;
enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7 };

static int open_sessions;
static const char *UUID = "GPU-11111111-2222-3333-4444-555555555555";
static char the_gpu;

status nvmlInit_v2(void) { open_sessions++; return SUCCESS; }
status nvmlShutdown(void) { open_sessions--; return SUCCESS; }
int fake_open_sessions(void) { return open_sessions; }

status nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return SUCCESS; }

status nvmlDeviceGetHandleByIndex_v2(unsigned index, device *found) {
    if (index != 0) return INVALID;
    *found = &the_gpu;
    return SUCCESS;
}

status nvmlDeviceGetHandleByUUID(const char *uuid, device *found) {
    if (strcmp(uuid, UUID) != 0) return INVALID;
    *found = &the_gpu;
    return SUCCESS;
}

static status text(const char *from, char *to, unsigned size) {
    if (strlen(from) + 1 > size) return TOO_SMALL;
    strcpy(to, from);
    return SUCCESS;
}
status nvmlSystemGetDriverVersion(char *to, unsigned size) { return text("580.65.06", to, size); }
status nvmlDeviceGetUUID(device gpu, char *to, unsigned size) { return gpu == &the_gpu ? text(UUID, to, size) : INVALID; }
status nvmlDeviceGetName(device gpu, char *to, unsigned size) { return text("NVIDIA H200", to, size); }

status nvmlDeviceGetCudaComputeCapability(device gpu, int *major, int *minor) { *major = 9; *minor = 0; return SUCCESS; }

struct memory { unsigned long long total, free, used; };
status nvmlDeviceGetMemoryInfo(device gpu, struct memory *told) {
    told->total = 150754820096ULL;
    told->free = told->total;
    told->used = 0;
    return SUCCESS;
}

static status number(unsigned *to, unsigned value) { *to = value; return SUCCESS; }
status nvmlDeviceGetMinorNumber(device gpu, unsigned *to) { return number(to, 3); }
status nvmlDeviceGetMaxClockInfo(device gpu, unsigned kind, unsigned *to) { return number(to, kind == 1 ? 1980 : 3201); }
status nvmlDeviceGetClockInfo(device gpu, unsigned kind, unsigned *to) { return number(to, kind == 1 ? 1755 : 3201); }
status nvmlDeviceGetTemperature(device gpu, unsigned sensor, unsigned *to) { return number(to, sensor == 0 ? 41 : 99); }
status nvmlDeviceGetPowerUsage(device gpu, unsigned *to) { return number(to, 123456); }
status nvmlDeviceGetEnforcedPowerLimit(device gpu, unsigned *to) { return number(to, 700000); }
status nvmlDeviceGetPersistenceMode(device gpu, unsigned *to) { return number(to, 1); }
status nvmlDeviceGetEccMode(device gpu, unsigned *now, unsigned *then) { *now = 1; *then = 0; return SUCCESS; }
status nvmlDeviceGetMigMode(device gpu, unsigned *now, unsigned *then) { return NOT_SUPPORTED; }

status nvmlDeviceGetCurrentClocksThrottleReasons(device gpu, unsigned long long *to) { *to = 0x24; return SUCCESS; }

struct utilization { unsigned gpu, memory; };
status nvmlDeviceGetUtilizationRates(device gpu, struct utilization *to) { to->gpu = 37; to->memory = 5; return SUCCESS; }

struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
status nvmlDeviceGetComputeRunningProcesses_v3(device gpu, unsigned *count, struct process *to) {
    if (*count < 20) { *count = 20; return TOO_SMALL; }
    for (unsigned each = 0; each < 20; each++) {
        to[each].pid = 1000 + each;
        to[each].used = each == 0 ? ~0ULL : 1ULL << 20;
        to[each].gpu_instance = to[each].compute_instance = ~0U;
    }
    *count = 20;
    return SUCCESS;
}
