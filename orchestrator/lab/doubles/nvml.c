/* The lab's libnvidia-ml.so.1: answers what orch asks NVML for, as the lab's nvidia-smi does.
 *
 * Its orders are beside the file it is loaded from (a link to it is followed), in gpu.txt, which Lab.set_gpus writes
 * with gpu.json: one order a line.
 *     mode hang|mismatch|none|unknown|crash     lost I     slow_ms N     not_available NAME     processes_hidden
 *     device I NAME VALUE     process I PID MIB
 * A process uses GPU i by holding gpus/nvidia<i> open; its memory in MiB is the descriptor's position.
 * Rule: orders are read again when the file is another one, and processes at most five times a second.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15, MISMATCH = 18, UNKNOWN = 999 };
enum { GPUS = 8, PROCESSES = 64, MIB_TOTAL = 143771 };
typedef unsigned int u32;
typedef unsigned long long u64;

typedef struct { u32 pid; u64 used; u32 instance, compute_instance; } process_info;
typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char name[32]; } pci_info;
typedef struct { u64 total, free, used; } memory_v1;
typedef struct { u32 version; u64 total, reserved, free, used; } memory_v2;
typedef struct { u32 gpu, memory; } utilization;
typedef struct { int lost, used_mib, temperature; u64 throttle, uncorrected; } gpu_state;

static char folder[PATH_MAX];
static char mode[16];
static char absent[512];
static int slow_ms, hidden, given;
static gpu_state gpus[GPUS];
static process_info given_processes[PROCESSES];
static int given_gpu[PROCESSES];
static struct { int count; process_info all[PROCESSES]; } held[GPUS];
static struct stat seen_orders;
static double scanned_at;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void find_folder(void) {
    Dl_info about;
    char file[PATH_MAX];
    if (folder[0] || !dladdr((void *)find_folder, &about) || !realpath(about.dli_fname, file))
        return;
    *strrchr(file, '/') = 0;
    strcpy(folder, file);
}

static void read_orders(void) {
    char path[PATH_MAX + 16], line[256], word[64], more[64];
    struct stat found = {0};
    find_folder();
    snprintf(path, sizeof path, "%s/gpu.txt", folder);
    FILE *stream = NULL;
    if (stat(path, &found) == 0) {
        if (found.st_ino == seen_orders.st_ino && found.st_mtim.tv_nsec == seen_orders.st_mtim.tv_nsec &&
            found.st_mtim.tv_sec == seen_orders.st_mtim.tv_sec)
            return;
        stream = fopen(path, "r");
    } else if (!seen_orders.st_ino && given == GPUS)
        return;
    seen_orders = found;
    mode[0] = absent[0] = 0;
    slow_ms = hidden = 0;
    given = GPUS;
    scanned_at = 0;
    memset(gpus, 0, sizeof gpus);
    memset(given_processes, 0, sizeof given_processes);
    int processes = 0;
    while (stream && fgets(line, sizeof line, stream)) {
        int index, pid, mib;
        unsigned long long value;
        if (sscanf(line, "mode %15s", mode) == 1 || sscanf(line, "slow_ms %d", &slow_ms) == 1 ||
            sscanf(line, "devices %d", &given) == 1)
            continue;
        if (sscanf(line, "lost %d", &index) == 1 && index >= 0 && index < GPUS)
            gpus[index].lost = 1;
        else if (!strncmp(line, "processes_hidden", 16))
            hidden = 1;
        else if (sscanf(line, "not_available %63s", more) == 1 && strlen(absent) + strlen(more) + 2 < sizeof absent)
            strcat(strcat(strcat(absent, " "), more), " ");
        else if (sscanf(line, "process %d %d %d", &index, &pid, &mib) == 3 && processes < PROCESSES) {
            given_gpu[processes] = index;
            given_processes[processes].pid = pid;
            given_processes[processes++].used = mib;
        } else if (sscanf(line, "device %d %63s %llu", &index, word, &value) == 3 && index >= 0 && index < GPUS) {
            if (!strcmp(word, "memory_used_mib")) gpus[index].used_mib = value;
            if (!strcmp(word, "temperature.gpu")) gpus[index].temperature = value;
            if (!strcmp(word, "clocks_event_reasons.active")) gpus[index].throttle = value;
            if (!strcmp(word, "ecc.errors.uncorrected.volatile.total")) gpus[index].uncorrected = value;
        }
    }
    if (stream)
        fclose(stream);
}

static void hold(int index, u32 pid, u64 mib) {
    for (int number = 0; number < held[index].count; number++)
        if (held[index].all[number].pid == pid) {
            if (held[index].all[number].used < mib << 20)
                held[index].all[number].used = mib << 20;
            return;
        }
    if (held[index].count < PROCESSES)
        held[index].all[held[index].count++] = (process_info){pid, mib << 20, ~0u, ~0u};
}

/* In a container the host's /proc is shown as driver-proc: the driver knows all, by the host's numbers. */
static void scan(void) {
    char path[PATH_MAX + 512], proc[PATH_MAX + 32], line[128];
    struct stat devices[GPUS], found;
    if (now() - scanned_at < 0.2)
        return;
    scanned_at = now();
    memset(held, 0, sizeof held);
    for (int number = 0; number < PROCESSES && given_processes[number].pid; number++)
        hold(given_gpu[number], given_processes[number].pid, given_processes[number].used);
    for (int index = 0; index < GPUS; index++) {
        snprintf(path, sizeof path, "%s/gpus/nvidia%d", folder, index);
        if (stat(path, &devices[index]))
            return;
    }
    snprintf(proc, sizeof proc, "%s/driver-proc", folder);
    snprintf(path, sizeof path, "%s/self", proc);
    if (lstat(path, &found))
        strcpy(proc, "/proc");
    DIR *all = opendir(proc);
    for (struct dirent *one; all && (one = readdir(all));) {
        int pid = atoi(one->d_name);
        snprintf(path, sizeof path, "%s/%d/fd", proc, pid);
        DIR *descriptors = pid > 0 ? opendir(path) : NULL;
        for (struct dirent *fd; descriptors && (fd = readdir(descriptors));) {
            snprintf(path, sizeof path, "%s/%d/fd/%s", proc, pid, fd->d_name);
            ssize_t length = readlink(path, line, sizeof line - 1);
            if (length < 0 || (line[length] = 0, !strstr(line, "nvidia")) || stat(path, &found))
                continue;
            for (int index = 0; index < GPUS; index++)
                if (found.st_ino == devices[index].st_ino && found.st_dev == devices[index].st_dev) {
                    u64 mib = 0;
                    snprintf(path, sizeof path, "%s/%d/fdinfo/%s", proc, pid, fd->d_name);
                    FILE *about = fopen(path, "r");
                    if (about && fscanf(about, "pos: %llu", &mib) == 1 && mib)
                        hold(index, pid, mib);
                    if (about)
                        fclose(about);
                }
        }
        if (descriptors)
            closedir(descriptors);
    }
    if (all)
        closedir(all);
}

static int begin(void) {
    read_orders();
    if (slow_ms)
        usleep(slow_ms * 1000);
    if (!strcmp(mode, "hang"))
        for (;;)
            pause();
    if (!strcmp(mode, "crash"))
        abort();
    return SUCCESS;
}

static int ask(void *handle, const char *name, int *index) {
    begin();
    *index = (int)(size_t)handle - 1;
    if (*index < 0 || *index >= given)
        return INVALID;
    if (gpus[*index].lost)
        return LOST;
    char padded[80];
    snprintf(padded, sizeof padded, " %s ", name);
    return strstr(absent, padded) ? NOT_SUPPORTED : SUCCESS;
}

static u64 used_mib(int index) {
    u64 mib = gpus[index].used_mib;
    scan();
    for (int number = 0; number < held[index].count; number++)
        mib += held[index].all[number].used >> 20;
    return mib;
}

static int busy(int index) { scan(); return held[index].count > 0; }

#define ASK(name) int index, code = ask(handle, name, &index); if (code) return code
#define NUMBER(function, name, value) int function(void *handle, u32 *out) { ASK(name); *out = (value); return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case SUCCESS: return "Success";
    case INVALID: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case TOO_SMALL: return "Insufficient Size";
    case LOST: return "GPU is lost";
    case MISMATCH: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlInit_v2(void) {
    begin();
    return !strcmp(mode, "mismatch") ? MISMATCH : !strcmp(mode, "unknown") ? UNKNOWN : SUCCESS;
}
int nvmlShutdown(void) { return SUCCESS; }
int nvmlSystemGetDriverVersion(char *out, u32 size) { snprintf(out, size, "580.95.05"); return SUCCESS; }
int nvmlSystemGetNVMLVersion(char *out, u32 size) { snprintf(out, size, "13.580.95.05"); return SUCCESS; }
int nvmlDeviceGetCount_v2(u32 *out) { begin(); *out = !strcmp(mode, "none") ? 0 : given; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(u32 number, void **out) {
    void *handle = (void *)(size_t)(number + 1);
    ASK("");
    *out = handle;
    return SUCCESS;
}
int nvmlDeviceGetName(void *handle, char *out, u32 size) { ASK("name"); snprintf(out, size, "NVIDIA H200"); return SUCCESS; }
int nvmlDeviceGetUUID(void *handle, char *out, u32 size) {
    ASK("uuid");
    snprintf(out, size, "GPU-5a4e8f0%x-1b2c-4d3e-8f90-0123456789ab", index);
    return SUCCESS;
}
int nvmlDeviceGetPciInfo_v3(void *handle, pci_info *out) {
    static const u32 bus[GPUS] = {0x19, 0x3b, 0x4c, 0x5d, 0x9b, 0xbb, 0xcb, 0xdb};
    ASK("pci.bus_id");
    memset(out, 0, sizeof *out);
    out->bus = bus[index];
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", bus[index]);
    snprintf(out->name, sizeof out->name, "00000000:%02X:00.0", bus[index]);
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *out) {
    ASK("memory.used");
    if (out->version != (sizeof *out | 2 << 24))
        return 25; /* argument version mismatch */
    out->total = (u64)MIB_TOTAL << 20;
    out->used = used_mib(index) << 20;
    out->reserved = 615ull << 20;
    out->free = out->total - out->used;
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(void *handle, utilization *out) {
    ASK("utilization.gpu");
    *out = (utilization){busy(index) ? 100 : 0, busy(index) ? 30 : 0};
    return SUCCESS;
}
int nvmlDeviceGetTemperature(void *handle, u32 sensor, u32 *out) {
    ASK("temperature.gpu");
    (void)sensor;
    *out = gpus[index].temperature ? gpus[index].temperature : busy(index) ? 61 : 29;
    return SUCCESS;
}
int nvmlDeviceGetClockInfo(void *handle, u32 kind, u32 *out) {
    ASK(kind == 2 ? "clocks.mem" : "clocks.sm");
    *out = kind == 2 ? 3201 : busy(index) ? 1980 : 345;
    return SUCCESS;
}
int nvmlDeviceGetMaxClockInfo(void *handle, u32 kind, u32 *out) { ASK("clocks.max.sm"); *out = kind == 2 ? 3201 : 1980; return SUCCESS; }
NUMBER(nvmlDeviceGetPowerUsage, "power.draw", busy(index) ? 650120 : 76310)
NUMBER(nvmlDeviceGetPowerManagementLimit, "power.limit", 700000)
NUMBER(nvmlDeviceGetPerformanceState, "pstate", 0)
int nvmlDeviceGetMigMode(void *handle, u32 *out, u32 *pending) { ASK("mig.mode.current"); *out = *pending = 0; return SUCCESS; }
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, u64 *out) {
    ASK("clocks_event_reasons.active");
    *out = gpus[index].throttle ? gpus[index].throttle : busy(index) ? 0 : 1;
    return SUCCESS;
}
int nvmlDeviceGetTotalEccErrors(void *handle, u32 kind, u32 counter, u64 *out) {
    ASK(kind ? "ecc.errors.uncorrected.volatile.total" : "ecc.errors.corrected.volatile.total");
    (void)counter;
    *out = kind ? gpus[index].uncorrected : 0;
    return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, u32 *count, process_info *out) {
    ASK("processes");
    scan();
    u32 room = *count;
    *count = hidden ? 0 : held[index].count;
    if (*count > room)
        return TOO_SMALL;
    memcpy(out, held[index].all, *count * sizeof *out);
    return SUCCESS;
}
