/*
 * The verifier's entry, and its checks of the plan: that every buffer is the piece that its layout
 * says, and lies where its kind may lie.
 *
 * It believes nothing that lowering worked out: shards are computed anew from the layouts, groups
 * from the mesh, operands from the graph. Ranks are checked class by class, which verify_class.c
 * makes sure stands for all of them. What flows through the buffers of a class is followed in
 * verify_flow.c, how ranks meet in verify_match.c and verify_groups.c, whether they wait in a
 * circle in verify_run.c. Time and memory are linear in the programs and in the ranks, but for
 * sorting.
 */
#include "program/verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *yoke_verify_tensor(const yoke_verify *verify, int rank, int buffer,
                               yoke_verify_text *text)
{
    const yoke_buffer *b = &yoke_program_of(verify->set, rank)->buffers[buffer];
    const char *name = verify->set->graph->values[b->value].name;
    if (b->microbatch == YOKE_ONCE_A_STEP) {
        snprintf(text->at, sizeof text->at, "%s", name);
    } else {
        snprintf(text->at, sizeof text->at, "%s (micro-batch %d)", name, b->microbatch);
    }
    return text->at;
}

const char *yoke_verify_instruction(const yoke_verify *verify, int rank, int64_t index,
                                    yoke_verify_text *text)
{
    return yoke_instruction_print(verify->set, rank, index, text->at, (int)sizeof text->at);
}

yoke_status yoke_verify_fail(const yoke_verify *verify, int rank, int64_t index, const char *format,
                             ...)
{
    char reason[4 * YOKE_VERIFY_TEXT_BYTES];
    yoke_verify_text instruction = {""};
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    if (index != YOKE_NOT_YET) {
        yoke_verify_instruction(verify, rank, index, &instruction);
    }
    return YOKE_FAIL(YOKE_CHECK, "rank %d%s%s: %s", rank, *instruction.at ? " " : "",
                     instruction.at, reason);
}

const yoke_program_transfer *yoke_verify_transfer(const yoke_verify *verify, yoke_verify_end end)
{
    return &yoke_program_of(verify->set, end.rank)->transfers[end.transfer];
}

int64_t yoke_verify_start(const yoke_verify *verify, yoke_verify_end end)
{
    return verify->classes[verify->set->class_of[end.rank]].start[end.transfer];
}

/* --- The plan of a rank ----------------------------------------------------------------------- */

static const char *kind_name(yoke_buffer_kind kind)
{
    static const char *const names[] = {
#define KIND_NAME(upper, lower, help) #lower,
        YOKE_BUFFER_KIND_LIST(KIND_NAME)
#undef KIND_NAME
    };
    return names[kind];
}

/* The parts of the slab, one a kind, lie inside it and apart. */
static yoke_status check_parts(const yoke_verify *verify, int rank)
{
    const yoke_program *program = yoke_program_of(verify->set, rank);
    for (int k = 0; k < YOKE_N_BUFFER_KINDS; k++) {
        int64_t offset = program->kind_offset[k];
        int64_t bytes = program->kind_bytes[k];
        if (offset < 0 || bytes < 0 || offset > program->slab_bytes - bytes) {
            return yoke_verify_fail(
                verify, rank, YOKE_NOT_YET,
                "the part for %s, %lld bytes from %lld, is out of the slab of %lld bytes",
                kind_name((yoke_buffer_kind)k), (long long)bytes, (long long)offset,
                (long long)program->slab_bytes);
        }
        for (int j = 0; j < k; j++) {
            bool apart = offset + bytes <= program->kind_offset[j] ||
                         program->kind_offset[j] + program->kind_bytes[j] <= offset;
            if (!apart && bytes > 0 && program->kind_bytes[j] > 0) {
                return yoke_verify_fail(
                    verify, rank, YOKE_NOT_YET, "the parts of the slab for %s and %s overlap",
                    kind_name((yoke_buffer_kind)j), kind_name((yoke_buffer_kind)k));
            }
        }
    }
    return YOKE_OK;
}

static bool has_extents(const yoke_shape *shape, const yoke_shard *shard)
{
    bool equal = shape->n_dims == shard->n_dims;
    for (int d = 0; equal && d < shape->n_dims; d++) {
        equal = shape->extent[d] == shard->extent[d];
    }
    return equal;
}

/* The buffer is the rank's piece of a value that there is. */
static yoke_status check_piece(const yoke_verify *verify, int rank, int id)
{
    const yoke_program_set *set = verify->set;
    const yoke_buffer *buffer = &yoke_program_of(set, rank)->buffers[id];
    if (buffer->value < 0 || buffer->value >= set->graph->n_values) {
        return yoke_verify_fail(verify, rank, YOKE_NOT_YET, "buffer %d holds value %d of %lld", id,
                                buffer->value, (long long)set->graph->n_values);
    }
    yoke_shard shard = yoke_program_shard(set, rank, buffer->value);
    int64_t bytes =
        yoke_shard_elements(&shard) * yoke_dtype_bytes(set->graph->values[buffer->value].dtype);
    yoke_verify_text tensor;
    if (!has_extents(&buffer->shape, &shard)) {
        return yoke_verify_fail(verify, rank, buffer->first,
                                "the buffer of %s is not the piece that its layout says",
                                yoke_verify_tensor(verify, rank, id, &tensor));
    }
    if (bytes != buffer->bytes) {
        return yoke_verify_fail(verify, rank, buffer->first,
                                "the buffer of %s has %lld bytes, its piece of the tensor %lld",
                                yoke_verify_tensor(verify, rank, id, &tensor),
                                (long long)buffer->bytes, (long long)bytes);
    }
    return YOKE_OK;
}

/* The buffer lies where it may. */
static yoke_status check_position(const yoke_verify *verify, int rank, int id)
{
    const yoke_program *program = yoke_program_of(verify->set, rank);
    const yoke_buffer *buffer = &program->buffers[id];
    if (buffer->bytes == 0) {
        return YOKE_OK;
    }
    int64_t part = program->kind_offset[buffer->kind];
    int64_t part_bytes = program->kind_bytes[buffer->kind];
    yoke_verify_text tensor;
    yoke_verify_tensor(verify, rank, id, &tensor);
    if (buffer->offset % YOKE_ALIGNMENT != 0) {
        return yoke_verify_fail(verify, rank, buffer->first,
                                "the buffer of %s begins at %lld, no multiple of %d", tensor.at,
                                (long long)buffer->offset, YOKE_ALIGNMENT);
    }
    if (buffer->offset < part || buffer->offset + buffer->bytes > part + part_bytes) {
        return yoke_verify_fail(
            verify, rank, buffer->first,
            "the buffer of %s, %lld bytes from %lld, is out of the part for %s, %lld bytes from "
            "%lld",
            tensor.at, (long long)buffer->bytes, (long long)buffer->offset, kind_name(buffer->kind),
            (long long)part_bytes, (long long)part);
    }
    int64_t scratch = program->kernel_scratch_offset;
    if (program->kernel_scratch_bytes > 0 && buffer->offset + buffer->bytes > scratch &&
        buffer->offset < scratch + program->kernel_scratch_bytes) {
        return yoke_verify_fail(verify, rank, buffer->first,
                                "the buffer of %s lies in what kernels use as scratch", tensor.at);
    }
    return YOKE_OK;
}

/* A buffer that takes over another's storage lies in it. */
static yoke_status check_root(const yoke_verify *verify, int rank, int id)
{
    const yoke_program *program = yoke_program_of(verify->set, rank);
    const yoke_buffer *buffer = &program->buffers[id];
    bool known = buffer->root >= 0 && buffer->root < program->n_buffers;
    const yoke_buffer *root = known ? &program->buffers[buffer->root] : buffer;
    if (!known || root->root != buffer->root || root->offset != buffer->offset ||
        root->bytes != buffer->bytes || root->kind != buffer->kind) {
        yoke_verify_text tensor;
        return yoke_verify_fail(verify, rank, buffer->first,
                                "the buffer of %s takes over storage that does not fit it",
                                yoke_verify_tensor(verify, rank, id, &tensor));
    }
    return YOKE_OK;
}

typedef struct extent {
    int64_t offset;
    int id;
} extent;

static int compare_extents(const void *a, const void *b)
{
    const extent *x = (const extent *)a;
    const extent *y = (const extent *)b;
    return x->offset != y->offset ? (x->offset < y->offset ? -1 : 1) : x->id - y->id;
}

/* Buffers that live between steps lie apart. */
static yoke_status check_lasting(const yoke_verify *verify, int rank)
{
    const yoke_program *program = yoke_program_of(verify->set, rank);
    extent *extents = YOKE_ARENA_NEW(verify->arena, extent, program->n_buffers);
    size_t n = 0;
    for (int i = 0; i < program->n_buffers; i++) {
        const yoke_buffer *buffer = &program->buffers[i];
        if (buffer->kind <= YOKE_BUFFER_OPTIMIZER && buffer->root == i && buffer->bytes > 0) {
            extents[n++] = (extent){.offset = buffer->offset, .id = i};
        }
    }
    qsort(extents, n, sizeof *extents, compare_extents);
    for (size_t i = 1; i < n; i++) {
        const yoke_buffer *before = &program->buffers[extents[i - 1].id];
        if (before->offset + before->bytes > extents[i].offset) {
            yoke_verify_text a;
            yoke_verify_text b;
            return yoke_verify_fail(verify, rank, program->buffers[extents[i].id].first,
                                    "the lasting buffers of %s and %s overlap at byte %lld",
                                    yoke_verify_tensor(verify, rank, extents[i - 1].id, &a),
                                    yoke_verify_tensor(verify, rank, extents[i].id, &b),
                                    (long long)extents[i].offset);
        }
    }
    return YOKE_OK;
}

static yoke_status check_plan(const yoke_verify *verify, int rank)
{
    YOKE_TRY(check_parts(verify, rank));
    for (int i = 0; i < yoke_program_of(verify->set, rank)->n_buffers; i++) {
        YOKE_TRY(check_piece(verify, rank, i));
        YOKE_TRY(check_root(verify, rank, i));
        YOKE_TRY(check_position(verify, rank, i));
    }
    return check_lasting(verify, rank);
}

/* --- The entry -------------------------------------------------------------------------------- */

static void init_class(const yoke_verify *verify, int class_id)
{
    int64_t n = verify->set->classes[class_id].n_transfers;
    yoke_verify_class *c = &verify->classes[class_id];
    *c = (yoke_verify_class){
        .start = YOKE_ARENA_NEW(verify->arena, int64_t, n),
        .wait = YOKE_ARENA_NEW(verify->arena, int64_t, n),
        .meeting = YOKE_ARENA_NEW(verify->arena, int, n),
    };
    for (int64_t i = 0; i < n; i++) {
        c->start[i] = c->wait[i] = YOKE_NOT_YET;
    }
}

static yoke_status verify_all(yoke_verify *verify)
{
    const yoke_program_set *set = verify->set;
    if (set->n_ranks != yoke_mesh_n_ranks(&set->mesh)) {
        return YOKE_FAIL(YOKE_CHECK, "programs of %d ranks for a mesh of %d", set->n_ranks,
                         yoke_mesh_n_ranks(&set->mesh));
    }
    YOKE_TRY(yoke_verify_classes(verify));
    verify->classes = YOKE_ARENA_NEW(verify->arena, yoke_verify_class, set->n_classes);
    for (int class_id = 0; class_id < set->n_classes; class_id++) {
        init_class(verify, class_id);
        YOKE_TRY(check_plan(verify, set->classes[class_id].rank));
        YOKE_TRY(yoke_verify_flow(verify, set->classes[class_id].rank));
    }
    YOKE_TRY(yoke_verify_match(verify));
    return yoke_verify_run(verify);
}

yoke_status yoke_program_verify(const yoke_program_set *set)
{
    yoke_verify verify = {.set = set};
    YOKE_TRY(yoke_arena_create(&verify.arena, 0));
    yoke_status status = verify_all(&verify);
    yoke_arena_destroy(verify.arena);
    return status;
}
