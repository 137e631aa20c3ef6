/*
 * How much memory a new program may hope for: the kernel's own estimate, and what the control groups above this process
 * leave of their limits (both versions of them).
 *
 * Relies on /proc and /sys; a file that is missing sets no limit. It does not look at address-space limits, which bound
 * mappings and not memory.
 */
#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int64_t min_int64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The number behind `key` at the start of a line, or alone in the file if `key` is ""; -1 if there is none ("max"). */
static int64_t read_number(const char *path, const char *key)
{
    FILE *file = fopen(path, "r");
    if (!file) {
        return -1;
    }
    int64_t number = -1;
    char line[256];
    size_t skip = strlen(key);
    while (number < 0 && fgets(line, sizeof line, file)) {
        int64_t found;
        if (strncmp(line, key, skip) == 0 && sscanf(line + skip, "%" SCNd64, &found) == 1) {
            number = found;
        }
    }
    (void)fclose(file);
    return number;
}

typedef struct group_files {
    const char *root;
    const char *limit;
    const char *usage;
    const char *reclaimable_key; /* in memory.stat: page cache that goes when memory is short */
} group_files;

static const group_files version_1 = {
    .root = "/sys/fs/cgroup/memory",
    .limit = "memory.limit_in_bytes",
    .usage = "memory.usage_in_bytes",
    .reclaimable_key = "total_inactive_file ",
};
static const group_files version_2 = {
    .root = "/sys/fs/cgroup",
    .limit = "memory.max",
    .usage = "memory.current",
    .reclaimable_key = "inactive_file ",
};

/* What the group at `path` (below the root) has left, or INT64_MAX without a limit. */
static int64_t group_left(const group_files *files, const char *path)
{
    char name[4352];
    (void)snprintf(name, sizeof name, "%s%s/%s", files->root, path, files->limit);
    int64_t limit = read_number(name, "");
    (void)snprintf(name, sizeof name, "%s%s/%s", files->root, path, files->usage);
    int64_t usage = read_number(name, "");
    if (limit < 0 || usage < 0) {
        return INT64_MAX;
    }
    (void)snprintf(name, sizeof name, "%s%s/memory.stat", files->root, path);
    int64_t cached = read_number(name, files->reclaimable_key);
    int64_t left = limit - usage + (cached > 0 ? cached : 0);
    return left > 0 ? left : 0;
}

/* The least that the group at `path` and any above it has left; cuts `path` down to "" on the way. */
static int64_t groups_left(const group_files *files, char *path)
{
    int64_t left = INT64_MAX;
    for (;;) {
        size_t length = strlen(path);
        while (length > 0 && path[length - 1] == '/') {
            path[--length] = '\0';
        }
        left = min_int64(left, group_left(files, path));
        char *slash = strrchr(path, '/');
        if (!slash) {
            return left;
        }
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup are "0::/path" (version 2) or "7:memory,...:/path" (version 1). */
static int64_t line_left(char *line)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) {
        return INT64_MAX;
    }
    *path++ = '\0';
    if (controllers[1] == '\0') {
        return groups_left(&version_2, path);
    }
    return strstr(controllers, "memory") ? groups_left(&version_1, path) : INT64_MAX;
}

int64_t yoke_memory_available_bytes(void)
{
    int64_t kibibytes = read_number("/proc/meminfo", "MemAvailable:");
    int64_t available = kibibytes < 0
                            ? (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE)
                            : kibibytes * 1024;
    FILE *file = fopen("/proc/self/cgroup", "r");
    if (!file) {
        return available;
    }
    char line[4096];
    while (fgets(line, sizeof line, file)) {
        available = min_int64(available, line_left(line));
    }
    (void)fclose(file);
    return available;
}
