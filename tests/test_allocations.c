/*
 * Nothing is allocated in the step loop: not by what the library counts, and not by anything else in the process.
 *
 * malloc and its kin are counted by standing in front of glibc's. Ranks are threads here, so that all of them are seen. What
 * oneDNN borrows within one product and gives back at its end is not yoke's and not counted. With a sanitizer, which stands
 * in front of malloc itself, only the library's own count is tested.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdatomic.h>
#include "session_case.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if !defined(SANITIZED) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))
#define SANITIZED 1
#endif

#if !defined(SANITIZED)
static _Atomic int64_t n_requests;
static _Thread_local bool in_product;
static yoke_kernel product;

/* glibc's own, under the names that it exports for this. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static void count(void)
{
    if (in_product) {
        return;
    }
    (void)atomic_fetch_add_explicit(&n_requests, 1, memory_order_relaxed);
}

void *malloc(size_t bytes)
{
    count();
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    count();
    return __libc_calloc(n, bytes);
}

void *realloc(void *block, size_t bytes)
{
    count();
    return __libc_realloc(block, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    count();
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    count();
    *block = __libc_memalign(alignment, bytes);
    return *block ? 0 : ENOMEM;
}

static void watched_product(const yoke_kernel_call *call)
{
    in_product = true;
    product(call);
    in_product = false;
}

/* Requests of a run of so many steps, set-up and end included. */
static int64_t requests_of(scene *s, int64_t n_steps)
{
    yoke_run_result result;
    yoke_run_options options = {.n_steps = n_steps};
    int64_t before = atomic_load(&n_requests);
    assert_ok(yoke_session_run(s->session, &options, &result), s->config.mesh);
    assert_int_equal(result.step_allocations, 0);
    assert_int_equal(result.steps, n_steps);
    return atomic_load(&n_requests) - before;
}

/* Ten steps more ask for nothing more. */
static void assert_no_request(const char *mesh, const char *kernels)
{
    const session_case c = {
        .keys = "embd_pdrop=0.1 attn_pdrop=0.1", .mesh = mesh, .microbatches = 3, .steps = 12};
    scene s;
    scene_open(&s, &c);
    s.config.kernels = kernels;
    scene_plan(&s);
    product = s.session->kernels[YOKE_OP_MATMUL];
    s.session->kernels[YOKE_OP_MATMUL] = strcmp(kernels, "ref") == 0 ? product : watched_product;
    (void)requests_of(&s, 2);
    int64_t few = requests_of(&s, 2);
    int64_t many = requests_of(&s, 12);
    if (many != few) {
        fail_msg("mesh '%s', kernels %s: %lld requests in 2 steps, %lld in 12", mesh, kernels,
                 (long long)few, (long long)many);
    }
    scene_close(&s);
}

static void test_no_request_in_a_step(void **state)
{
    (void)state;
    static const char *const meshes[] = {"", "dp=2", "tp=2,pp=2", "dp=2,tp=2,pp=2"};
    for (int i = 0; i < 4; i++) {
        assert_no_request(meshes[i], "ref");
        assert_no_request(meshes[i], "auto");
    }
}

/* The counter itself sees a request, wherever it is made. */
static void test_requests_are_seen(void **state)
{
    (void)state;
    int64_t before = atomic_load(&n_requests);
    char *copy = strdup("a request from within the C library");
    assert_non_null(copy);
    free(copy);
    assert_true(atomic_load(&n_requests) > before);
}
#endif

static void test_the_library_counts_none(void **state)
{
    (void)state;
    const session_case c = {.mesh = "dp=2,tp=2,pp=2", .microbatches = 3};
    outcome o;
    run_case(&c, &o);
    assert_int_equal(o.result.step_allocations, 0);
    outcome_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if !defined(SANITIZED)
        cmocka_unit_test(test_no_request_in_a_step),
        cmocka_unit_test(test_requests_are_seen),
#endif
        cmocka_unit_test(test_the_library_counts_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
