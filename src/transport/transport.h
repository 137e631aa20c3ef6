/*
 * Transport: moves bytes between ranks. It knows ranks, groups and buffers; it knows no tensor
 * names, axes or programs.
 *
 * A transfer is started (never blocks) and waited for. The buffers of a started transfer belong to
 * the transport until its wait returns. Messages between two ranks match in the order of their
 * starts; so do the collectives of a group. Each start carries a small header (kind, elements, tag,
 * pieces), so that a mismatch is an error on every rank that takes part, not silent garbage.
 *
 * `local` joins the ranks of one machine: threads, or processes forked over one shared mapping.
 * There one rank reads and writes the buffers of the others directly; all buffers handed to it lie
 * in memory that every rank sees at the same address. Sums run in ascending order of group members,
 * so their bits depend on nothing else.
 *
 * A transfer is complete once all who take part have started it and one of them, any one, has done
 * the work: small ones are done by the last to start, large ones by those who wait. No rank has to
 * be running for another's wait to end, so waits may come in any order: only a transfer that
 * somebody never starts makes others wait for ever. A wait then ends with YOKE_RANK_LOST, when the
 * job is aborted. Waiting spins shortly if every rank has a core, else lets others have its own a
 * few times; then it sleeps (futex).
 */
#ifndef YOKE_TRANSPORT_TRANSPORT_H
#define YOKE_TRANSPORT_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>
#include "yoke/graph.h"
#include "yoke/layout.h"

typedef struct yoke_world yoke_world;       /* the memory that the ranks of one job share */
typedef struct yoke_endpoint yoke_endpoint; /* one rank's end of it */

/* Ranks of one world: `local` keeps room for messages between any two of them. */
enum {
    YOKE_MAX_WORLD_RANKS = 1024,
    YOKE_MAX_DEPTH = 256 /* transfers outstanding in one channel or group */
};

typedef enum yoke_transfer_kind {
    YOKE_TRANSFER_SEND,
    YOKE_TRANSFER_RECV,
    YOKE_TRANSFER_ALL_REDUCE_SUM,
    YOKE_TRANSFER_ALL_REDUCE_MAX,
    YOKE_TRANSFER_REDISTRIBUTE_COPY, /* all_gather, all_to_all */
    YOKE_TRANSFER_REDISTRIBUTE_SUM,  /* reduce_scatter */
    YOKE_TRANSFER_BROADCAST,
    YOKE_TRANSFER_BARRIER,
    YOKE_N_TRANSFER_KINDS
} yoke_transfer_kind;

/* One transfer as one rank sees it. Sums of bf16 elements are made in float32 and rounded once; int32
 * are never added.
 *
 * all_reduce: in place on `out` [elements]; `in` is ignored.
 * redistribute: every member m holds piece `in_shards[m]` of one global tensor, compactly; this rank
 *   wants piece `out_shard`. Each element of it is copied from the one member that has it, or is the
 *   sum over all members that have it. Where nobody has an element, or a copy would have two
 *   sources, the start is refused. `in` and `out` must not overlap. `elements` is ignored: what is
 *   compared between members are the shards.
 * broadcast: from member `peer` of the group; in place on `out`.
 * send: `in`; recv: `out`; `elements` of them, to or from rank `peer`. */
typedef struct yoke_transfer {
    yoke_transfer_kind kind;
    int group;        /* collectives: index in the world's list of groups */
    int peer;         /* send, recv: a rank; broadcast: a member's index */
    int tag;          /* must be equal at both ends; for error messages and checks */
    yoke_dtype dtype; /* likewise; the zero value is float32 */
    int64_t elements;
    const void *in;
    void *out;
    const yoke_shard *in_shards; /* [members], the same at every member */
    const yoke_shard *out_shard;
} yoke_transfer;

/* Caller's memory, like the transfer it points to, from start to the end of wait. */
typedef struct yoke_request {
    const yoke_transfer *transfer;
    uint64_t sequence; /* within its channel or group */
} yoke_request;

typedef struct yoke_world_options {
    int n_ranks;
    int n_groups;
    const int *group_size;         /* [n_groups] */
    const int *const *group_ranks; /* [n_groups][group_size], ascending */
    /* How far starts may run ahead in one direction of a pair or in one group: a transfer is started
     * only once the one `depth` before it has been waited for. 0: 4; at most YOKE_MAX_DEPTH. */
    int depth;
    int n_cores;       /* cores of the machine; 0: asks the system */
    double timeout_s;  /* how long others wait for a rank without sign of life; 0: 600 */
    size_t user_bytes; /* shared memory for the caller, zeroed */
} yoke_world_options;

yoke_status yoke_world_create(const yoke_world_options *options, yoke_world **world) YOKE_MUST_USE;
void yoke_world_destroy(yoke_world *world);
void *yoke_world_user(yoke_world *world); /* [user_bytes] shared by all ranks and the launcher */

/* Collective among the members of the group, or the two ends of a message. Requests may be waited
 * for in any order, each once. YOKE_CHECK where those who take part disagree. */
yoke_status yoke_transfer_start(yoke_endpoint *endpoint, const yoke_transfer *transfer,
                                yoke_request *request) YOKE_MUST_USE;
yoke_status yoke_transfer_wait(yoke_endpoint *endpoint, yoke_request *request) YOKE_MUST_USE;
int yoke_endpoint_rank(const yoke_endpoint *endpoint);

/* What this rank is doing: an instruction number that the launcher can read at any moment; also a
 * sign of life, as is every start. */
void yoke_endpoint_mark(yoke_endpoint *endpoint, int64_t instruction);
/* YOKE_RANK_LOST once the job is being aborted; cheap; for loops that do not wait. */
yoke_status yoke_endpoint_check(yoke_endpoint *endpoint) YOKE_MUST_USE;
/* Sleeps until `*word` differs from `value`, the job aborts (YOKE_RANK_LOST) or `seconds` have
 * passed (good). `word` lies in the user memory. */
yoke_status yoke_endpoint_sleep(yoke_endpoint *endpoint, const uint32_t *word, uint32_t value,
                                double seconds) YOKE_MUST_USE;
void yoke_world_wake(yoke_world *world, uint32_t *word); /* wakes the sleepers on a word */

typedef enum yoke_rank_end {
    YOKE_RANK_RUNNING,
    YOKE_RANK_GOOD,    /* returned YOKE_OK */
    YOKE_RANK_FAILED,  /* returned an error of its own */
    YOKE_RANK_KILLED,  /* by `signal` */
    YOKE_RANK_STOPPED, /* by `signal`; ended by the launcher */
    YOKE_RANK_HUNG,    /* no sign of life for the timeout; ended by the launcher */
    YOKE_RANK_ABORTED  /* ended because of another rank; `waiting` says what it was waiting for */
} yoke_rank_end;

typedef struct yoke_rank_report {
    yoke_rank_end end;
    int signal;
    int64_t instruction; /* last mark */
    int waits_for;       /* a rank that had not arrived when this one gave up, or -1 */
    yoke_code code;
    char message[512];
} yoke_rank_report;

typedef struct yoke_launch {
    bool threads;                                            /* else forked processes */
    yoke_status (*run)(yoke_endpoint *endpoint, void *user); /* one rank */
    void (*poll)(void *user);        /* launcher, about 20 times a second; may be NULL */
    bool (*interrupted)(void *user); /* true: the user asked to stop; may be NULL */
    /* Name of an instruction, without its number; called by launcher and ranks; may be NULL. */
    const char *(*describe)(void *user, int rank, int64_t instruction, char *buffer,
                            int buffer_bytes);
    void *user;
} yoke_launch;

/* Runs all ranks and returns when every one has ended: nothing is left behind, also if a rank was
 * killed, stopped or hung; then all others end within 5 s. A world may be launched again and again.
 * Returns YOKE_OK, or the first error, saying which rank failed first, by what signal, and what the
 * others were waiting for. `reports` [n_ranks] is filled in either case.
 * Processes: the caller has no other threads and has not started any; state is shared through
 * mappings made before. They ignore SIGINT: `interrupted` decides. Threads: a rank that neither
 * waits nor asks yoke_endpoint_check cannot be ended. */
yoke_status yoke_world_launch(yoke_world *world, const yoke_launch *launch,
                              yoke_rank_report *reports) YOKE_MUST_USE;

#endif
