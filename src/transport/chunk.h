/*
 * The work of a collective, in chunks that can be done in any order, by any member, at the same
 * time. Arithmetic on the members' buffers only: no waiting, no atomics.
 */
#ifndef YOKE_TRANSPORT_CHUNK_H
#define YOKE_TRANSPORT_CHUNK_H

#include "transport/world.h"

/* A collective that all members have started, seen by one of them. */
typedef struct yoke_work {
    const yoke_transfer *transfer; /* this member's, for what is the same at all: kind, in_shards */
    int n_members;
    yoke_slot *slot;
    yoke_entry *entries; /* [n_members] */
} yoke_work;

/* Cuts the work: fills n_chunks of each entry, and of the slot, and chunk_elements. Returns the
 * bytes that will be read. */
int64_t yoke_work_plan(const yoke_work *work);

/* Does chunk `index` of those of `member`. */
void yoke_work_run(const yoke_work *work, int member, int64_t index);

#endif
