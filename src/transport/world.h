/*
 * World: what the ranks of one job share, and one rank's view of it. For the files of this folder.
 *
 * Everything under "shared" lies in one mapping that is made anew, all zero, for each launch and
 * before any rank exists, so that every rank sees it at the same address. Counters that serve many
 * transfers in turn never go back: each transfer knows from its sequence number which values are
 * its own (an *epoch* is one round through a ring).
 *
 * Atomics are used by wait.c, rank.c, message.c, collective.c and the launcher's files; each use
 * names its partner. Where nothing is said, an access is relaxed and tells only about itself.
 */
#ifndef YOKE_TRANSPORT_WORLD_H
#define YOKE_TRANSPORT_WORLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "transport/transport.h"

enum {
    YOKE_CACHE_LINE = 64,
    YOKE_DEFAULT_DEPTH = 4,
};

/* A number that ranks sleep on until it changes; see wait.h. */
typedef struct yoke_gate {
    _Atomic uint32_t word;
    _Atomic uint32_t n_sleepers;
} yoke_gate;

/* What those who take part in a transfer must agree on. */
typedef struct yoke_header {
    yoke_transfer_kind kind;
    int root; /* broadcast */
    int tag;
    yoke_dtype dtype;
    int64_t elements;
    uint64_t digest; /* of all shards */
} yoke_header;

/* Shared: one member's part in one collective of the ring. */
typedef struct yoke_entry {
    _Alignas(YOKE_CACHE_LINE) yoke_header header; /* up to out_shard: the member's, until open */
    const void *in;
    void *out;
    yoke_shard out_shard;
    int64_t n_chunks; /* written by who opens the slot */
    _Alignas(YOKE_CACHE_LINE) _Atomic int64_t next_chunk;
    _Atomic uint64_t n_started; /* sequence number + 1 of the last one that this member started */
    _Atomic bool works;         /* this member is busy with chunks, its own or others' */
} yoke_entry;

/* Shared: one collective of the ring. The gate's word is 2 * epoch while members arrive, one more
 * once all have (open), and one more again when the work is done. */
typedef struct yoke_slot {
    _Alignas(YOKE_CACHE_LINE) yoke_gate gate;
    _Alignas(YOKE_CACHE_LINE) _Atomic uint32_t n_arrived; /* over all epochs */
    _Atomic int64_t n_finished;                           /* chunks of this epoch */
    int64_t n_chunks;                                     /* these: written by who opens */
    int64_t chunk_elements;
    int odd_member; /* one that does not agree with the others, or -1 */
} yoke_slot;

/* One group as the world keeps it; slots and entries are shared. */
typedef struct yoke_ranks {
    int n;
    const int *rank;     /* [n], ascending */
    yoke_slot *slots;    /* [n_slots] */
    yoke_entry *entries; /* [n_slots][n] */
} yoke_ranks;

/* Shared: one message of the ring of a pair. The gate's word is 8 * epoch + bits of message.c. */
typedef struct yoke_message {
    _Alignas(YOKE_CACHE_LINE) yoke_gate gate;
    uint64_t
        failed_epoch; /* 1 + that in which the two ends first disagreed, by these numbers; 0: none */
    int64_t failed_elements[2];
    int failed_tag[2];
    yoke_dtype failed_dtype[2];
    _Alignas(YOKE_CACHE_LINE) int64_t sent_elements; /* the sender's */
    const void *from;
    int sent_tag;
    yoke_dtype sent_dtype;
    _Alignas(YOKE_CACHE_LINE) int64_t wanted_elements; /* the receiver's */
    void *to;
    int wanted_tag;
    yoke_dtype wanted_dtype;
} yoke_message;

/* Why a job ends early. */
typedef enum yoke_cause_kind {
    YOKE_CAUSE_FAILED,      /* a rank returned an error, or left without saying why */
    YOKE_CAUSE_KILLED,      /* by a signal */
    YOKE_CAUSE_STOPPED,     /* likewise */
    YOKE_CAUSE_HUNG,        /* no sign of life while another waited for it */
    YOKE_CAUSE_ENDED,       /* it had ended well when another still waited for it */
    YOKE_CAUSE_CIRCLE,      /* ranks wait for one another; no rank */
    YOKE_CAUSE_NOT_STARTED, /* the system would not start more; no rank */
    YOKE_CAUSE_INTERRUPTED  /* by the user; no rank */
} yoke_cause_kind;

typedef struct yoke_cause {
    yoke_cause_kind kind;
    int rank; /* or -1 */
    /* What the rank did ("was killed by signal 9 (Killed) in #41 matmul"), else a sentence. */
    char text[768];
} yoke_cause;

/* Shared: what a rank tells about itself. Only the rank writes. */
typedef struct yoke_rank_state {
    _Alignas(YOKE_CACHE_LINE) _Atomic int64_t instruction; /* -1 before the first mark */
    _Atomic uint32_t n_beats;                              /* signs of life: marks and starts */
    _Atomic uint32_t n_looks;    /* times it found that it still waits for waits_for */
    _Atomic int waits_for;       /* a rank, or -1 */
    _Atomic uintptr_t sleeps_on; /* the word it sleeps on, or 0 */
    _Atomic bool ended;          /* the report is written */
    yoke_rank_report report;
} yoke_rank_state;

/* Shared: one a job. */
typedef struct yoke_control {
    _Atomic bool aborting; /* taken by who may write `cause` */
    _Atomic bool aborted;  /* `cause` is written; everybody ends */
    yoke_cause cause;
    yoke_gate n_ended; /* ranks whose report is written; the launcher sleeps on it */
} yoke_control;

struct yoke_world {
    int n_ranks;
    int n_groups;
    int depth;
    int n_slots; /* in the ring of a group */
    int n_cores;
    double timeout_s;
    yoke_ranks *groups; /* [n_groups] */
    int *group_ranks;   /* the lists of all groups, one after the other */
    size_t user_bytes;
    void *user;
    size_t shared_bytes;
    void *shared; /* the mapping of the current launch, and its parts: */
    yoke_control *control;
    yoke_rank_state *states; /* [n_ranks] */
    yoke_message *messages;  /* [n_ranks from][n_ranks to][depth] */
};

/* One direction to or from a peer, or one group: what this rank has started there. */
typedef struct yoke_lane {
    uint64_t n_started;
    uint64_t busy[YOKE_MAX_DEPTH / 64]; /* bit s % depth: transfer s is not yet waited for */
} yoke_lane;

struct yoke_endpoint {
    yoke_world *world;
    const yoke_launch *launch;
    yoke_rank_state *self;
    int rank;
    bool spins;
    int *member;      /* [n_groups] this rank's index in each, or -1 */
    yoke_lane *lanes; /* [n_groups + 2 * n_ranks]: groups, then sends, then recvs by peer */
};

/* Makes the shared mapping for one launch, and unmakes it. Launcher. */
yoke_status yoke_world_map(yoke_world *world) YOKE_MUST_USE;
void yoke_world_unmap(yoke_world *world);

#endif
