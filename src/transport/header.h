/*
 * Headers of transfers: what those who take part must agree on, and saying who does not.
 */
#ifndef YOKE_TRANSPORT_HEADER_H
#define YOKE_TRANSPORT_HEADER_H

#include "transport/world.h"

const char *yoke_transfer_kind_name(yoke_transfer_kind kind);

/* The header of this member's transfer; `n_members` is the length of its in_shards. */
yoke_header yoke_header_of(const yoke_transfer *transfer, int n_members);

/* A member that does not agree with most of the others, or -1. */
int yoke_header_find_odd(const yoke_entry *entries, int n_members);

/* Names the odd rank, what it brings and what another one brings. */
yoke_status yoke_header_mismatch(const yoke_entry *entries, const yoke_ranks *group, int odd,
                                 uint64_t sequence) YOKE_MUST_USE;

#endif
