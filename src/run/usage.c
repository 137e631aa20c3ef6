/*
 * Resident memory of a rank, as Linux counts it.
 *
 * A rank reads the slabs of its peers where they are, and the kernel adds every page that it has
 * touched to its resident set, though the memory is the peer's. So: the largest resident set of the
 * process, less what of it are pages of other slabs.
 */
#include <stdio.h>
#include <string.h>
#include "run/session.h"

static int64_t high_water_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    long long kib = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "VmHWM: %lld", &kib) == 1) {
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    return kib * 1024;
}

static bool is_other_slab(const yoke_session *session, int own, unsigned long long start)
{
    for (int r = 0; r < session->n_ranks; r++) {
        unsigned long long slab = (unsigned long long)(uintptr_t)session->slabs[r];
        if (r != own && start >= slab && start < slab + session->slab_bytes[r]) {
            return true;
        }
    }
    return false;
}

static int64_t other_slabs_bytes(const yoke_session *session, int own)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long long start, end;
    long long kib, sum = 0;
    bool other = false;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%llx-%llx ", &start, &end) == 2) {
            other = is_other_slab(session, own, start);
        } else if (other && sscanf(line, "Rss: %lld", &kib) == 1) {
            sum += kib;
        }
    }
    if (file) {
        fclose(file);
    }
    return sum * 1024;
}

int64_t yoke_usage_peak_bytes(const yoke_session *session, int own)
{
    return high_water_bytes() - other_slabs_bytes(session, own);
}
