/*
 * The table of policies, and what the options of a run choose from it. A new strategy is a row here;
 * a new axis is a line in yoke/mesh.h besides. Letters that a row leaves out are none.
 */
#include "layout/policy.h"
#include <string.h>

/* Each rank has its share of the batch. By `zero` (Rajbhandari et al., "ZeRO", 2020): every rank
 * holds all, or a piece of the optimizer's state and of what it updates, or of gradients too, or of
 * everything. */
static const yoke_policy data[] = {
    {.compute = "b", .stream = "b"},
    {.compute = "b", .stream = "b", .storing = YOKE_STORE_GATHER_FOR_STEP},
    {.compute = "b", .stream = "b", .storing = YOKE_STORE_GATHER_FOR_STEP, .scatters_early = true},
    {.compute = "b", .stream = "b", .storing = YOKE_STORE_GATHER_FOR_USE, .scatters_early = true},
};

/* Fully sharded data parallelism (Zhao et al., "PyTorch FSDP", 2023). */
static const yoke_policy *const fully_sharded = &data[3];

/* Each rank has some of the experts, and elsewhere its share of the batch (Lepikhin et al.,
 * "GShard", 2021). */
static const yoke_policy expert = {.compute = "be", .parameter = "e", .stream = "b"};

/* Each rank has a piece of every sequence. Attention divides its queries and gathers keys and values,
 * or divides its heads (Jacobs et al., "DeepSpeed Ulysses", 2023), or passes keys and values round
 * in a ring (Liu et al., "Ring attention", 2023). Slots of experts divide as tokens do. Where queries
 * divide, the early ones have less to do, unless `balance_context` has tokens in balanced chunks. */
static const struct {
    const char *option;
    yoke_policy policy;
} context[] = {
    {"gather", {.compute = "tqc", .stream = "t", .balanced = 't'}},
    {"heads", {.compute = "thkc", .even = "k", .stream = "t"}},
    {"ring", {.compute = "tqsc", .stream = "t", .balanced = 't'}},
};

/* Heads, feed-forward width and vocabulary are divided (Shoeybi et al., "Megatron-LM", 2019);
 * key/value heads if they can be evenly, else every rank has them all (Ainslie et al. 2023). With
 * sequence parallelism (Korthikanti et al. 2022) the stream and the norms are divided by tokens. */
static const yoke_policy tensor[] = {
    {.compute = "hkfv", .parameter = "hkfv", .even = "k"},
    {.compute = "hkfvt", .parameter = "hkfv", .even = "k", .stream = "t"},
};

static void fill_in(yoke_policy *policy)
{
    policy->parameter = policy->parameter ? policy->parameter : "";
    policy->even = policy->even ? policy->even : "";
    policy->stream = policy->stream ? policy->stream : "";
}

yoke_policies yoke_policies_choose(const yoke_config *config)
{
    yoke_policies chosen = {.axis = {
                                [YOKE_AXIS_DP] = data[config->zero],
                                [YOKE_AXIS_FSDP] = *fully_sharded,
                                [YOKE_AXIS_EP] = expert,
                                [YOKE_AXIS_TP] = tensor[config->sequence_parallel],
                            }};
    for (size_t i = 0; i < sizeof context / sizeof *context; i++) {
        if (strcmp(config->context_parallel, context[i].option) == 0) {
            yoke_policy policy = context[i].policy;
            policy.balanced = config->balance_context ? policy.balanced : 0;
            chosen.axis[YOKE_AXIS_CP] = policy;
        }
    }
    YOKE_ASSERT(chosen.axis[YOKE_AXIS_CP].compute);
    for (int axis = 0; axis < YOKE_N_AXES; axis++) {
        fill_in(&chosen.axis[axis]);
    }
    return chosen;
}
